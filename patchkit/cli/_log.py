"""``log``: the audit log, transaction by transaction."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import AuditError
from ._command import Command
from ._console import Console
from ._reporting import style_of

if TYPE_CHECKING:
    from ..audit import Entry
    from ._history import Block

__all__ = ["COMMAND"]


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the file, and how much of it."""
    parser.add_argument(
        "file", metavar="FILE", nargs="?", help="the log (default: $PATCHKIT_AUDIT, then patchkit-audit.jsonl)"
    )
    parser.add_argument(
        "-n", "--last", metavar="N", type=_count, help="only the last N transactions, and what came after them"
    )


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Show the log as far as it is whole; 1 if something of it isn't, 2 if there is none that could be read."""
    from .._recorder import audit_path
    from ._history import sort_into_blocks, the_last

    path = Path(arguments.file) if arguments.file is not None else audit_path()
    entries: list[Entry] = []
    fault = _read(path, entries)
    if fault is not None and _is_unreadable(path, fault):
        console.error(fault)
        return 2
    blocks = sort_into_blocks(entries)
    whole = sum(block.tx is not None for block in blocks)
    if arguments.last is not None:
        blocks = the_last(blocks, arguments.last)
    _show(path, blocks, whole, fault, console)
    return 0 if fault is None else 1


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text)):
        raise argparse.ArgumentTypeError(f"expected a number of transactions, 1 or more, got {text!r}")
    return int(text)


def _read(path: Path, entries: list[Entry]) -> AuditError | None:
    """Add the entries that can be read, and return what is wrong with the rest."""
    from ..audit import read_entries, torn_tail

    try:
        entries.extend(read_entries(path))
        torn = torn_tail(path)
    except AuditError as error:
        return error
    if torn is None:
        return None
    line = (entries[-1].line or 0) + 1 if entries else 1
    return AuditError(
        f"{path}: line {line}, byte {torn.offset}: expected a whole entry, found {torn.length} bytes of one that was "
        "cut off by a crash, or that is being written at this moment. What is before it is whole; the next writer "
        "seals it off and goes on."
    )


def _is_unreadable(path: Path, fault: AuditError) -> bool:
    """Tell a log that can't be opened from one that is damaged."""
    return isinstance(fault.__cause__, OSError) or not path.is_file()


def _show(path: Path, blocks: list[Block], whole: int, fault: AuditError | None, console: Console) -> None:
    entries = sum(len(block.entries) for block in blocks)
    transactions = [block for block in blocks if block.tx is not None]
    unfinished = [block.tx for block in transactions if block.outcome == "open"]
    if console.settings.format == "json":
        from ..report import document

        summary = {"file": str(path), "entries": entries, "transactions": len(transactions), "open": unfinished}
        rows = sorted((entry for block in blocks for entry in block.entries), key=lambda entry: entry.offset)
        console.report(
            document(
                "log",
                summary={**summary, "fault": fault.message if fault else None},
                entries=[dict(entry.fields) for entry in rows],
            )
        )
    else:
        from ._log_text import history_text

        console.report(history_text(blocks, style_of(console)))
    if fault is not None:
        console.error(fault)
    still_open = f", {len(unfinished)} open" if unfinished else ""
    counted = _counted(len(transactions), "transaction", "transactions")
    if len(transactions) < whole:
        counted = f"the last {len(transactions)} of {_counted(whole, 'transaction', 'transactions')}"
    counts = f"{_counted(entries, 'entry', 'entries')}, {counted}"
    console.note(f"{path}: {counts}{still_open}.")


def _counted(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}"


COMMAND = Command(
    name="log",
    summary="show the audit log, transaction by transaction",
    usage="[-n N] [FILE]",
    examples="""\\
python -m patchkit log
python -m patchkit log -n 1 patchkit-audit.jsonl
python -m patchkit log --format json | jq -r '.entries[] | select(.event == "patch.failed") | .error.message'
""",
    run=run,
    configure=configure,
)
