"""What was found, in the form that somebody asked for: one file a format.

A new format is a module with a function that takes a ``Report`` and a ``Style`` and returns text, and a line in
``FORMATS``. Renderers open no files and look at no terminal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from . import _json, _text
from ._codes import Code, catalogue
from ._collect import pass_over_absent, report_on_known, report_on_plans, with_probe
from ._json import SCHEMA_VERSION, document, finding_facts, patch_facts, summary_facts, tool_version
from ._model import Finding, Level, Outcome, PatchResult, Report
from ._style import Colour, Style, colour_of
from ._summary import summarise
from ._table import Cell, aligned
from ._text import finding_lines

__all__ = [
    "FORMATS",
    "SCHEMA_VERSION",
    "Cell",
    "Code",
    "Colour",
    "Finding",
    "Level",
    "Outcome",
    "PatchResult",
    "Renderer",
    "Report",
    "Style",
    "aligned",
    "catalogue",
    "colour_of",
    "document",
    "finding_facts",
    "finding_lines",
    "pass_over_absent",
    "patch_facts",
    "report_on_known",
    "report_on_plans",
    "summarise",
    "summary_facts",
    "tool_version",
    "with_probe",
]

Renderer = Callable[[Report, Style], str]
"""Turns a report into text that ends in a line feed, or into nothing."""

FORMATS: Mapping[str, Renderer] = {
    "json": _json.render,
    "text": _text.render,
}
"""Every format of a report, by the name that ``--format`` takes."""
