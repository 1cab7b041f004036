"""What a patch needs of the library that it patches, and whether a library has it.

A contract is judged by reading source: of the installed distribution or of a directory, and never by importing it.
"""

from __future__ import annotations

from ._fingerprint import fingerprint
from ._installed import InstalledSource
from ._judge import fingerprint_of, judge
from ._load import load_contracts
from ._model import Contract, Finding, Fingerprint, Judgement, LibraryVersion, Symbol, Verdict
from ._source import DirectorySource, Source, SourceFile
from ._version import check_requirements

__all__ = [
    "Contract",
    "DirectorySource",
    "Finding",
    "Fingerprint",
    "InstalledSource",
    "Judgement",
    "LibraryVersion",
    "Source",
    "SourceFile",
    "Symbol",
    "Verdict",
    "check_requirements",
    "fingerprint",
    "fingerprint_of",
    "judge",
    "load_contracts",
]
