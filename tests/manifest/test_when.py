"""Conditions of entries: when they hold, and what is said where they don't."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from patchkit.manifest import When


@dataclass
class FakeEnvironment:
    """An environment that counts how often it is asked for an accelerator."""

    python: str = "3.12.1"
    platform: str = "linux"
    versions: dict[str, str] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)
    present: bool = False
    asked: int = 0

    def version(self, distribution: str) -> str | None:
        return self.versions.get(distribution)

    def getenv(self, name: str) -> str | None:
        return self.variables.get(name)

    def accelerator(self) -> bool:
        self.asked += 1
        return self.present


HERE = FakeEnvironment(
    versions={"torch": "2.9.0+cu128", "nightly": "2.10.0a0+git", "odd": "unknown"},
    variables={"SET": "low-memory", "EMPTY": ""},
)


@pytest.mark.parametrize(
    ("when", "reason"),
    [
        (When(), None),
        (When(requires=("torch",)), None),
        (When(requires=("torch>=2.7,<2.16",)), None),
        (When(requires=("torch==2.9.0",)), None),
        (When(requires=("torch<=2.9.0",)), None),
        (When(requires=("torch==2.9.0+cu128",)), None),
        (When(requires=("torch==2.9.0+cpu",)), "torch is 2.9.0+cu128, expected torch==2.9.0+cpu"),
        (When(requires=("torch>2.9.0",)), "torch is 2.9.0+cu128, expected torch>2.9.0"),
        (When(requires=("torch", "torch<2.9")), "torch is 2.9.0+cu128, expected torch<2.9"),
        (When(requires=("nightly>=2.9",)), None),
        (When(requires=("nightly>=2.10",)), "nightly is 2.10.0a0+git, expected nightly>=2.10"),
        (When(requires=("nightly<2.10",)), "nightly is 2.10.0a0+git, expected nightly<2.10"),
        (When(requires=("absent",)), "absent is not installed, expected absent"),
        (When(requires=("absent>=1",)), "absent is not installed, expected absent>=1"),
        (When(requires=("odd",)), None),
        (When(requires=("odd>=1",)), "odd is unknown, expected odd>=1"),
        (When(python=">=3.10"), None),
        (When(python="<3.12"), "Python is 3.12.1, expected <3.12"),
        (When(platform="lin*"), None),
        (When(platform="Linux"), "platform is 'linux', expected 'Linux'"),
        (When(env={"SET": "low*"}), None),
        (When(env={"SET": "*"}), None),
        (When(env={"SET": "LOW*"}), "environment variable SET doesn't match 'LOW*'"),
        (When(env={"SET": ""}), "environment variable SET doesn't match ''"),
        (When(env={"EMPTY": ""}), None),
        (When(env={"EMPTY": "*"}), None),
        (When(env={"UNSET": ""}), None),
        (When(env={"UNSET": "*"}), "environment variable UNSET is not set, expected '*'"),
        (When(accelerator=False), None),
        (When(accelerator=True), "no accelerator is present"),
    ],
    ids=repr,
)
def test_condition(when: When, reason: str | None) -> None:
    """Each condition holds, or says what was found and what was expected."""
    assert when.unmet(HERE) == reason


def test_present_accelerator() -> None:
    """An accelerator that is present is wanted or not."""
    environment = FakeEnvironment(present=True)
    assert When(accelerator=True).unmet(environment) is None
    assert When(accelerator=False).unmet(environment) == "an accelerator is present"


def test_values_of_variables_stay_secret() -> None:
    """A reason goes on the log, so it doesn't give away what a variable is set to."""
    reason = When(env={"SET": "high"}).unmet(HERE)
    assert reason is not None
    assert "low-memory" not in reason


@pytest.mark.parametrize(
    ("when", "asked"),
    [
        (When(python=">=3.10"), 0),
        (When(platform="win32", accelerator=True), 0),
        (When(requires=("absent",), accelerator=True), 0),
        (When(python=">=3.10", accelerator=True), 1),
    ],
    ids=repr,
)
def test_accelerator_is_asked_last(when: When, asked: int) -> None:
    """Asking for an accelerator may import a heavy library, so it happens only where it decides."""
    environment = FakeEnvironment()
    when.unmet(environment)
    assert environment.asked == asked


RELEASES = st.lists(st.integers(0, 3), min_size=1, max_size=3).map(lambda parts: ".".join(map(str, parts)))
SUFFIXES = st.sampled_from(["", "a1", "rc2", ".dev3", ".post1"])
OPERATORS = st.sampled_from(["==", "!=", "<", "<=", ">", ">="])


@given(RELEASES, SUFFIXES, OPERATORS, RELEASES, st.sampled_from(["cpu", "cu128", "git.1a2b"]))
def test_local_part_makes_no_difference(release: str, suffix: str, operator: str, bound: str, local: str) -> None:
    """Whatever a requirement without a local part says of a version, it says of every build of it."""
    when = When(requires=(f"lib{operator}{bound}",))
    plain = when.unmet(FakeEnvironment(versions={"lib": release + suffix}))
    built = when.unmet(FakeEnvironment(versions={"lib": f"{release}{suffix}+{local}"}))
    assert (plain is None) == (built is None)
