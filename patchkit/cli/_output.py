"""Writing what a command has to say, to a stream or to a file."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from typing import TextIO

__all__ = ["is_terminal", "write_file", "write_stream"]


def is_terminal(stream: TextIO | None) -> bool:
    """Say whether a person looks at the stream."""
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # closed
        return False


def write_stream(stream: TextIO | None, text: str) -> None:
    """Write all of ``text`` at once; a reader that has gone away (``| head``) is no error.

    What the stream's encoding can't express is written as an escape.

    Raises:
        OSError: The stream can't be written for another reason, such as a full disk.
    """
    if stream is None:  # the process was started without it
        return
    try:
        try:
            stream.write(text)
        except UnicodeEncodeError:
            encoding = stream.encoding or "ascii"
            stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
        stream.flush()
    except BrokenPipeError:
        _give_up(stream)
    except OSError:
        _give_up(stream)
        raise


def write_file(path: str, text: str) -> None:
    """Replace the content of a file: a reader sees the old or the new one, and a failure leaves the old one.

    A symbolic link stays and its target is replaced. What isn't an ordinary file, such as ``/dev/stderr``, is written
    as it is.

    Raises:
        OSError: It can't be written; its content is what it was.
    """
    target = os.path.realpath(path)
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        mode = stat.S_IFREG | (0o666 & ~_umask())
    if not stat.S_ISREG(mode):
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return
    descriptor, temporary = tempfile.mkstemp(dir=os.path.dirname(target), prefix=f".{os.path.basename(target)}.")
    try:
        with open(descriptor, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, stat.S_IMODE(mode))
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def _umask() -> int:
    # It can only be read by setting it.
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _give_up(stream: TextIO) -> None:
    """Let what is still buffered go nowhere, so that the interpreter doesn't try, and complain, again at its end."""
    with contextlib.suppress(OSError, ValueError), open(os.devnull, "w", encoding="ascii") as nowhere:
        os.dup2(nowhere.fileno(), stream.fileno())
