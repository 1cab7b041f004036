"""Run ``verify --probe`` against one patch release of every minor release of torch, and write ``docs/support.md``."""

from __future__ import annotations

import argparse
import datetime as dt
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from packaging.version import Version

from scripts import _support

ROOT = Path(__file__).resolve().parent.parent
FIRST = Version("2.1")


def main() -> int:
    """Go through the releases; 0 where every one could be tried and no probe failed."""
    parser = argparse.ArgumentParser(
        prog="scripts/support-matrix",
        description="Prove every patch on one patch release of every minor release of torch, and write "
        "docs/support.md. Each release needs about 5 GB, which are deleted before the next one.",
    )
    parser.add_argument("releases", nargs="*", metavar="VERSION", help="only these releases (default: all minors)")
    parser.add_argument("--keep", action="store_true", help="keep the environments, for scripts/lane")
    parser.add_argument("--missing", action="store_true", help="only releases that docs/support.json lacks")
    parser.add_argument("--list", action="store_true", help="print the releases, and do nothing")
    arguments = parser.parse_args()
    releases = arguments.releases or newest_of_each_minor(versions_in_index())
    if arguments.missing:
        known = _support.load()
        releases = [release for release in releases if release not in known]
    if arguments.list:
        print("\n".join(releases))
        return 0
    results = [prove(release, keep=arguments.keep) for release in releases]
    return 0 if all(results) else 1


def versions_in_index() -> list[str]:
    """Ask pip which releases of torch there are for this interpreter."""
    command = [sys.executable, "-m", "pip", "index", "versions", "torch"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = re.search(r"^Available versions: (.+)$", done.stdout, re.MULTILINE)
    if found is None:
        sys.exit(f"scripts/support-matrix: expected pip to list the releases of torch, it said:\n{done.stderr.strip()}")
    return found.group(1).split(", ")


def newest_of_each_minor(versions: list[str]) -> list[str]:
    """Return the newest final release of each minor release from 2.1 on, oldest first, without local builds."""
    newest: dict[tuple[int, int], Version] = {}
    for version in map(Version, versions):
        if version >= FIRST and not version.is_prerelease and version.local is None:
            minor = version.major, version.minor
            newest[minor] = max(version, newest.get(minor, version))
    return [str(newest[minor]) for minor in sorted(newest)]


def prove(release: str, *, keep: bool) -> bool:
    """Try all patches on one release, and note what came of it."""
    print(f"== torch {release}", flush=True)
    with tempfile.TemporaryDirectory(prefix="patchkit-support-") as folder:
        report = Path(folder) / "verify.json"
        command = ["scripts/lane", *([] if keep else ["--rm"]), release]
        command += ["python", "-m", "patchkit", "verify", "--probe", "--format", "json", "-o", str(report)]
        status = subprocess.run(command, cwd=ROOT, check=False).returncode
        if not report.exists():
            print(f"== torch {release}: could not be tried", flush=True)
            return False
        today = dt.datetime.now(dt.timezone.utc).date().isoformat()
        _support.note(release, today, json.loads(report.read_text(encoding="utf-8")))
    return status == 0


if __name__ == "__main__":
    sys.exit(main())
