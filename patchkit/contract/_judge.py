"""A contract against a source. Static: nothing of the library is imported, whatever the source is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..errors import ContractError
from ._checks import check_symbol, fingerprints_of, remarks_on
from ._found import Definition, Found, Gap
from ._installed import InstalledSource
from ._loaded import is_stale
from ._model import Contract, Finding, Judgement, LibraryVersion, Symbol, Verdict
from ._resolve import Resolver
from ._source import Source
from ._version import Requirement, library_version, parse_requirement, satisfies

__all__ = ["fingerprint_of", "judge"]


def judge(contract: Contract, source: Source) -> Judgement:
    """Judge a contract by the source of a library; see :class:`Verdict` for what the verdicts mean and which decides.

    Versions are counted by the rule in ``patchkit.contract._version``. The source is judged whatever the number says,
    since it outranks the number, and nothing in a library makes this raise: what can't be read is ``unknown``. Safe to
    call from several threads.

    Args:
        contract: What a patch needs.
        source: Where the library is read.

    Raises:
        RegistrationError: The contract itself is wrong: a requirement that doesn't parse.
    """
    requires = [parse_requirement(text) for text in contract.requires]
    until = [parse_requirement(text) for text in contract.until]
    versions = _versions([*requires, *until], source)
    findings = [*_retired(until, versions), *_excluded(requires, versions, source, judged=bool(contract.symbols))]
    resolver = Resolver(source)
    absent: dict[str, None] = {}
    remarks = list(_unnumbered(requires, versions)) if contract.symbols else []
    for symbol in contract.symbols:
        found = _find(symbol, resolver)
        packages = [item.package for item in found if isinstance(item, Gap) and item.package and not item.imported]
        if packages:
            absent.update(dict.fromkeys(packages))
            continue
        findings += check_symbol(symbol, found)
        if isinstance(source, InstalledSource) and source.is_of_process:
            findings += _stale(symbol, found)
        remarks += remarks_on(symbol, found)
    if not any(finding.verdict is Verdict.UNKNOWN and finding.symbol is None for finding in findings):
        findings += _absent(absent, source)
    return Judgement(
        verdict=Verdict.gravest(finding.verdict for finding in findings),
        findings=tuple(sorted(findings, key=lambda finding: -finding.verdict.rank)),
        versions=tuple(versions.values()),
        source=source.label,
        remarks=tuple(remarks),
    )


def fingerprint_of(source: Source, symbol_path: str) -> list[str]:
    """Return the fingerprints of a symbol in a source: one for each definition that it has there.

    Raises:
        RegistrationError: ``symbol_path`` isn't the path of a symbol.
        ContractError: The source has no body under that path; the message says what it has.
    """
    found = _find(Symbol(symbol_path), Resolver(source))
    digests = fingerprints_of(found)
    if not digests:
        gaps = [item.found for item in found if isinstance(item, Gap)] or ["no body to read"]
        raise ContractError(
            f"{symbol_path}: expected a body to fingerprint in {source.label}, found {'; '.join(gaps)}. "
            "Check the path, or read it from a source that has it."
        )
    return digests


def _find(symbol: Symbol, resolver: Resolver) -> Found:
    try:
        return resolver.find(symbol.module, symbol.names)
    except RecursionError:
        return [Gap("source that is nested too deeply to follow")]


def _stale(symbol: Symbol, found: Found) -> Iterator[Finding]:
    """Yield a finding if the function that is loaded isn't any of those in the source."""
    definitions = [item for item in found if isinstance(item, Definition)]
    if definitions and all(map(is_stale, definitions)):
        text = "another one in its file, which was changed since; restart the process"
        yield Finding(Verdict.UNKNOWN, symbol.path, "the code that is loaded", text, definitions[0].where)


def _versions(requirements: Sequence[Requirement], source: Source) -> dict[str, LibraryVersion]:
    versions: dict[str, LibraryVersion] = {}
    for requirement in requirements:
        name = requirement.distribution
        if name not in versions:
            versions[name] = library_version(name, source.version(name))
    return versions


def _retired(until: Sequence[Requirement], versions: dict[str, LibraryVersion]) -> Iterator[Finding]:
    for requirement in until:
        version = versions[requirement.distribution]
        if satisfies(version, requirement):
            expected = f"a release before upstream's fix ({requirement.text})"
            yield Finding(Verdict.RETIRED, None, expected, str(version))


def _excluded(
    requires: Sequence[Requirement], versions: dict[str, LibraryVersion], source: Source, *, judged: bool
) -> Iterator[Finding]:
    for requirement in requires:
        version = versions[requirement.distribution]
        if version.raw is None:
            place = "is not installed" if source.label == "installed" else f"has no metadata in {source.label}"
            yield Finding(Verdict.UNKNOWN, None, requirement.text, f"{version.distribution} {place}")
        elif satisfies(version, requirement) is False:
            counted = f", which counts as {version.normalised}" if version.normalised != version.raw else ""
            yield Finding(Verdict.EXCLUDED, None, requirement.text, f"{version}{counted}")
        elif version.normalised is None and not judged:
            yield Finding(Verdict.UNKNOWN, None, requirement.text, f"{version}, a number that says nothing")


def _unnumbered(requires: Sequence[Requirement], versions: dict[str, LibraryVersion]) -> Iterator[Finding]:
    """Remark on numbers that say nothing, where the source was judged instead."""
    for requirement in requires:
        version = versions[requirement.distribution]
        if version.raw is not None and version.normalised is None:
            text = f"{version}, a number that says nothing; the source alone was judged"
            yield Finding(Verdict.OK, None, requirement.text, text)


def _absent(packages: dict[str, None], source: Source) -> Iterator[Finding]:
    for package in packages:
        yield Finding(Verdict.UNKNOWN, None, f"the package {package}", f"none in {source.label}")
