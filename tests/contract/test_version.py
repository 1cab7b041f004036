"""The rule by which version numbers count."""

from __future__ import annotations

import pytest

from patchkit.contract._version import library_version, parse_requirement, satisfies
from patchkit.errors import RegistrationError


@pytest.mark.parametrize(
    ("raw", "normalised"),
    [
        ("2.9.0", "2.9.0"),
        ("2.9.0+cu128", "2.9.0"),
        ("2.9.0+cpu", "2.9.0"),
        ("2.9.0+nv25.1", "2.9.0"),
        ("0.25.1+empty", "0.25.1"),
        ("2.10.0a0+git1a2b3c4", "2.10.0a0"),
        ("2.9.0a0+50eac811a6.nv25.09", "2.9.0a0"),
        ("2.10.0.dev20251001+cu130", "2.10.0.dev20251001"),
        ("2.10.0rc3", "2.10.0rc3"),
        ("2.9.0.post1", "2.9.0.post1"),
        ("v2.9", "2.9"),
        ("0.1.0", "0.1.0"),
        ("0.1.dev1", "0.1.dev1"),
        # Stand-ins of source builds, and text that is no version.
        ("0.1.dev1+g1a2b3c4", None),
        ("0.1.dev1+g1a2b3c4.d20251001", None),
        ("0.0.0", None),
        ("0+unknown", None),
        ("0+untagged.1.g1a2b3c4", None),
        ("master", None),
        ("", None),
    ],
)
def test_what_a_number_counts_as(raw: str, normalised: str | None) -> None:
    """The local segment falls away, and a number that says nothing counts as none; the raw text is always kept."""
    version = library_version("torch", raw)
    assert (version.raw, version.normalised) == (raw, normalised)


@pytest.mark.parametrize(
    ("raw", "requirement", "expected"),
    [
        ("2.9.0+cu128", "torch==2.9.0", True),
        ("2.9.0+cu128", "torch<=2.9.0", True),
        ("2.9.0+cu128", "torch>2.9.0", False),
        ("2.9.0+cu128", "torch!=2.9.0", False),
        ("2.9.0+cu128", "torch>=2.1,<2.16", True),
        ("2.16.0+cu128", "torch>=2.1,<2.16", False),
        # Only a specifier that names a local segment sees it.
        ("2.9.0+cu128", "torch==2.9.0+cu128", True),
        ("2.9.0+cpu", "torch==2.9.0+cu128", False),
        ("2.9.0+cpu", "torch===2.9.0+cpu", True),
        # Pre-releases take part, and sort before the release.
        ("2.10.0a0+git", "torch>=2.10", False),
        ("2.10.0a0+git", "torch>=2.9", True),
        ("2.10.0a0+git", "torch>=2.10.0a0", True),
        ("2.10.0a0+git", "torch<2.10", False),
        ("2.10.0a0+git", "torch>=2.9,<2.11", True),
        ("2.10.0.dev20251001", "torch>=2.9", True),
        ("2.10.0.dev20251001", "torch>=2.10", False),
        ("2.10.0rc1", "torch~=2.9", True),
        # A number that says nothing neither fits nor excludes.
        ("0.1.dev1+g1a2b3c4", "torch>=2.1,<2.16", None),
        ("not a version", "torch>=2.1", None),
        (None, "torch>=2.1", None),
        # A distribution alone: any version.
        ("2.9.0", "torch", True),
        ("2.10.0a0", "torch", True),
    ],
)
def test_whether_a_number_fits(raw: str | None, requirement: str, expected: bool | None) -> None:
    """Each case of the rule in the module's docstring."""
    assert satisfies(library_version("torch", raw), parse_requirement(requirement)) is expected


@pytest.mark.parametrize(
    "text",
    ["torch>>2", "torch 2.1", "", ">=2.1", "torch>=2.1; python_version < '3.11'", "torch[extra]>=2", "torch @ file:x"],
)
def test_malformed_requirement(text: str) -> None:
    """A requirement is a distribution and specifiers; whatever says how to install it is refused, not passed over."""
    with pytest.raises(RegistrationError) as caught:
        parse_requirement(text)
    assert caught.value.message == (
        f"requirement {text!r}: expected a distribution and specifiers, such as 'torch>=2.1,<2.16'"
    )


def test_requirement_keeps_its_text() -> None:
    """A finding shows the requirement as it was written, not as it was sorted."""
    requirement = parse_requirement(" torch >=2.1, <2.16 ")
    assert (requirement.distribution, requirement.text) == ("torch", "torch >=2.1, <2.16")


def test_version_as_text() -> None:
    """People see the raw number, or that there is none."""
    assert str(library_version("torch", "2.9.0+cu128")) == "torch 2.9.0+cu128"
    assert str(library_version("torch", None)) == "torch (not installed)"
