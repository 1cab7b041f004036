"""Law 2: a transaction ends with all of its patches installed and verified, or with none."""

from __future__ import annotations

import itertools
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from patchkit import Context, PatchkitError
from patchkit._effects import EffectRecord
from patchkit._journal import Journal
from patchkit._records import LayerRecord, TargetsRecord
from patchkit.audit import AuditLog, read_entries
from patchkit.errors import AuditError, ForeignChangeError, InstallError, RefusedError, RevertError, VerifyError
from tests.engine._faults import PATCHES, Fault, Scene
from tests.engine._kit import Lab, Memory, prefixing

ERRORS = [RuntimeError, MemoryError, KeyboardInterrupt, SystemExit]


@pytest.fixture
def scene(lab: Lab) -> Scene:
    return Scene(lab)


class Nth:
    """Stands before a method and raises in its n-th call, before or after the method itself did its work."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]) -> None:
        self.count = 0
        self.nth = -1
        self._error = error
        self._monkeypatch = monkeypatch

    def watch(self, owner: type, name: str, *, after: bool) -> None:
        method = getattr(owner, name)

        def counted(this: Any, *args: Any, **kwargs: Any) -> Any:
            number, self.count = self.count, self.count + 1
            if number == self.nth and not after:
                raise self._error("before")
            result = method(this, *args, **kwargs)
            if number == self.nth and after:
                raise self._error("after")
            return result

        self._monkeypatch.setattr(owner, name, counted)

    def each(self, run: Callable[[], object]) -> Iterator[BaseException]:
        """Run with a fault in the first call, in the second, and so on, as long as there is one; yield what it
        raised.
        """
        for nth in itertools.count():
            self.nth, self.count = nth, 0
            try:
                run()
            except BaseException as error:
                yield error
            else:
                assert self.count <= nth
                self.nth = -1
                return


PRIMITIVES = [
    (Journal, "perform"),
    (LayerRecord, "do"),
    (TargetsRecord, "do"),
    (EffectRecord, "do"),
]


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_nth_primitive_fails(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, error: type[BaseException], after: bool
) -> None:
    """Whichever primitive raises, whatever it raises, before or after it has acted: everything is what it was."""
    nth = Nth(monkeypatch, error)
    for owner, name in PRIMITIVES:
        nth.watch(owner, name, after=after)
    failures = 0
    for raised in nth.each(lambda: scene.apply().revert()):
        failures += 1
        assert isinstance(raised, InstallError if issubclass(error, Exception) else error)
        assert scene.differences() == []
    assert failures > 20


@pytest.mark.parametrize("error", ERRORS)
def test_nth_maker_fails(scene: Scene, error: type[BaseException]) -> None:
    """Whichever ``make`` raises: everything is what it was, and other patches' layers on the same sites are
    unharmed.
    """
    remaining = [0]

    def strike() -> None:
        remaining[0] -= 1
        if remaining[0] == -1:
            raise error("make")

    scene.on_make = strike
    for nth in itertools.count():
        remaining[0] = nth
        try:
            applied = scene.apply()
            break
        except (InstallError, error) as raised:
            kind = type(raised)
        assert kind is (InstallError if issubclass(error, Exception) else error)
        assert scene.differences() == []
    assert nth > 5
    scene.on_make = lambda: None
    applied.revert()
    assert scene.differences() == []


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("name", ["check", "install", "verify"])
def test_nth_step_of_a_patch_fails(lab: Lab, scene: Scene, name: str, error: type[BaseException]) -> None:
    """Whichever patch fails in its check, installation or verification: none is installed."""
    struck = [False]

    def step(ctx: Context) -> None:
        if name == "install":
            ctx.set(scene.lib, "LAST", 1)
        if struck[0]:
            raise error(name)

    def install(ctx: Context) -> None:
        ctx.set(scene.lib, "LAST", 1)

    steps = {"install": install, "check": lambda ctx: None, "verify": lambda ctx: None, name: step}
    lab.patch("t.failing", **steps)
    lab.apply("t.failing").revert()
    struck[0] = True
    for position in range(len(PATCHES) + 1):
        names = [*PATCHES[:position], "t.failing", *PATCHES[position:]]
        expected = {"check": InstallError, "install": InstallError, "verify": VerifyError}[name]
        with pytest.raises(expected if issubclass(error, Exception) else error) as caught:
            scene.apply(*names)
        assert scene.differences() == []
        if isinstance(caught.value, PatchkitError):
            assert caught.value.patch == "t.failing"
            assert isinstance(caught.value.__cause__, error)


@pytest.mark.parametrize("error", [AuditError, KeyboardInterrupt])
def test_nth_record_fails(scene: Scene, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]) -> None:
    """Whichever entry of the audit log can't be written: none is installed."""
    nth = Nth(monkeypatch, error)
    nth.watch(AuditLog, "record", after=False)
    failures = 0
    for raised in nth.each(lambda: scene.apply(*PATCHES)):
        failures += 1
        assert isinstance(raised, error)
        assert scene.differences() == []
    assert failures > len(PATCHES) * 3


@pytest.mark.parametrize("stride", [pytest.param(1, marks=pytest.mark.long), 41])
def test_interrupt_at_any_line(scene: Scene, stride: int) -> None:
    """An interrupt between any two lines of the engine, up to the last before the handle is returned, leaves nothing
    behind.
    """
    scene.apply().revert()
    struck = _sweep(stride, scene, scene.apply)
    assert struck > 2000 / stride


# Where a transaction is led, and an interrupt would do most harm.
LEADING = (
    "_transaction.py",
    "_interrupts.py",
    "_applied.py",
    "_installation.py",
    "_journal.py",
    "_effects.py",
    "_hooks.py",
)


def test_interrupt_at_every_line_that_leads(scene: Scene) -> None:
    """The same at each single line of what leads a transaction, for one patch."""
    assert _sweep(1, scene, lambda: scene.apply("scene.others"), LEADING) > 150


@pytest.mark.parametrize("stride", [pytest.param(1, marks=pytest.mark.long), 41])
def test_interrupt_at_any_line_of_a_roll_back(lab: Lab, scene: Scene, stride: int) -> None:
    """An interrupt at any line while a failed transaction is rolled back does not stop the roll-back."""

    def fail(ctx: Context) -> None:
        raise ValueError("not in effect")

    lab.patch("t.failing", lambda ctx: ctx.set(scene.lib, "LAST", 1), verify=fail)

    def run() -> None:
        with pytest.raises(VerifyError):
            scene.apply(*PATCHES, "t.failing")

    struck = _sweep(stride, scene, run)
    assert struck > 2000 / stride


def test_interrupt_at_every_line_that_leads_back(lab: Lab, scene: Scene) -> None:
    """The same at each single line of what leads a transaction that fails, for one patch."""

    def fail(ctx: Context) -> None:
        raise ValueError("not in effect")

    lab.patch("t.failing", lambda ctx: ctx.set(scene.lib, "LAST", 1), verify=fail)

    def run() -> None:
        with pytest.raises(VerifyError):
            lab.apply("t.failing")

    assert _sweep(1, scene, run, LEADING) > 150


def test_interrupts_as_often_as_they_come(lab: Lab, scene: Scene) -> None:
    """However often a roll-back is interrupted, it goes on where it was; the first interrupt comes through."""
    remaining = [KeyboardInterrupt("third"), KeyboardInterrupt("second"), KeyboardInterrupt("first")]

    def interrupted(ctx: Context) -> None:
        if remaining:
            raise remaining.pop()

    def fail(ctx: Context) -> None:
        raise ValueError("not in effect")

    lab.patch("t.failing", lambda ctx: ctx.set(scene.lib, "LAST", 1), verify=fail, uninstall=interrupted)
    with pytest.raises(KeyboardInterrupt, match="first"):
        scene.apply(*PATCHES, "t.failing")
    assert remaining == []
    assert scene.differences() == []


def _sweep(stride: int, scene: Scene, run: Callable[[], object], within: tuple[str, ...] = ()) -> int:
    start = 7 % stride
    for struck, nth in enumerate(itertools.count(start, stride)):
        fault = Fault(nth, KeyboardInterrupt, within)
        try:
            with fault.striking():
                result: Any = run()
        except KeyboardInterrupt:
            assert (fault.place, scene.differences()) == (fault.place, [])
        else:
            # Not a line was left to strike at.
            assert fault.place == ""
            if result is not None:
                result.revert()
            return struck
    raise AssertionError


@pytest.fixture
def _ctrl_c() -> Iterator[None]:
    """Let SIGINT be what it is at a terminal: a process in the background is born ignoring it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_ctrl_c")
def test_interrupt_by_signal(lab: Lab, scene: Scene) -> None:
    """Ctrl-C in the middle of an installation is delivered after it, and then everything is rolled back."""
    seen: list[str] = []

    def install(ctx: Context) -> None:
        ctx.set(scene.lib, "A", 1)
        signal.raise_signal(signal.SIGINT)
        seen.append("went on")
        ctx.set(scene.lib, "B", 2)

    lab.patch("t.interrupted", install)
    with pytest.raises(KeyboardInterrupt):
        scene.apply(*PATCHES, "t.interrupted")
    assert seen == ["went on"]
    assert scene.differences() == []


@pytest.mark.usefixtures("_ctrl_c")
def test_interrupt_by_signal_in_the_last_step(lab: Lab, scene: Scene) -> None:
    """Ctrl-C while the last patch is verified still takes everything out: nobody would get the handle."""
    lab.patch("t.last", lambda ctx: ctx.set(scene.lib, "A", 1), verify=lambda ctx: signal.raise_signal(signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        scene.apply(*PATCHES, "t.last")
    assert scene.differences() == []


@pytest.mark.usefixtures("_ctrl_c")
def test_second_interrupt_gets_through(lab: Lab, scene: Scene) -> None:
    """A patch that hangs can be left with a second Ctrl-C; everything is rolled back."""
    seen: list[str] = []

    def install(ctx: Context) -> None:
        ctx.set(scene.lib, "A", 1)
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        seen.append("went on")

    lab.patch("t.hanging", install)
    with pytest.raises(KeyboardInterrupt):
        scene.apply(*PATCHES, "t.hanging")
    assert seen == []
    assert scene.differences() == []


def test_failure_inside_a_roll_back(lab: Lab, scene: Scene) -> None:
    """What can't be undone is named; everything else is undone, on the log as well."""
    stuck = [True]

    def undo() -> None:
        if stuck[0]:
            raise OSError("it is stuck")
        scene.switched.discard("stuck")

    def install(ctx: Context) -> None:
        ctx.set(scene.lib, "A", 1)
        ctx.action("turn the screw", lambda: scene.switched.add("stuck"), undo)
        ctx.set(scene.lib, "B", 1)
        raise ValueError("after the fact")

    lab.patch("t.stuck", install)
    with pytest.raises(RevertError, match=r"turn the screw \(it is stuck\)") as caught:
        scene.apply(*PATCHES, "t.stuck")
    error = caught.value
    assert error.stranded == ("t.stuck: turn the screw (it is stuck)",)
    assert [type(cause) for cause in error.exceptions] == [OSError]
    assert isinstance(error.__cause__, InstallError)
    assert scene.memory.differences() == []
    assert scene.switched == {"stuck"}
    last = list(read_entries(lab.log))[-1]
    assert (last.event, last.fields["stranded"]) == ("apply.rolled_back", list(error.stranded))


def test_failing_uninstall_does_not_stop_the_rest(lab: Lab, scene: Scene) -> None:
    """A patch's own uninstall that fails is named, and the journal is undone all the same."""

    def fail(ctx: Context) -> None:
        raise OSError("no way out")

    lab.patch("t.own", lambda ctx: ctx.set(scene.lib, "A", 1), uninstall=fail, verify=fail)
    with pytest.raises(RevertError, match="the patch's own uninstall") as caught:
        scene.apply(*PATCHES, "t.own")
    assert caught.value.stranded == ("t.own: the patch's own uninstall (no way out)",)
    assert scene.differences() == []


def test_stranger_met_in_a_roll_back(lab: Lab, scene: Scene) -> None:
    """A site that somebody changed while the transaction ran is left alone and named; the rest is rolled back."""

    def stranger(x: int) -> str:
        return "stranger"

    def verify(ctx: Context) -> None:
        scene.lib.LIMIT = stranger
        raise ValueError("not in effect")

    lab.patch("t.watched", lambda ctx: ctx.replace("scenelib:LIMIT", 5), verify=verify)
    with pytest.raises(RevertError, match="scenelib:LIMIT") as caught:
        scene.apply("scene.functions", "t.watched")
    assert [type(cause) for cause in caught.value.exceptions] == [ForeignChangeError]
    assert scene.lib.LIMIT is stranger
    assert (scene.lib.f("1"), scene.user.g("1")) == ("f(1)", "f(1)")


def test_optional_entries_are_left_out_alone(lab: Lab, scene: Scene) -> None:
    """Entries that need not apply and refuse, in their check or half-way, are left out and recorded; the rest is
    applied.
    """

    def refuse(ctx: Context) -> None:
        raise RefusedError("not here")

    def refuse_half_way(ctx: Context) -> None:
        ctx.set(scene.lib, "HALF", 1)
        raise RefusedError("not like this")

    lab.patch("t.refusing", lambda ctx: ctx.set(scene.lib, "A", 1), check=refuse)
    lab.patch("t.half-way", refuse_half_way)
    lab.patch("t.idle", lambda ctx: None)
    optional = [{"name": name, "required": False} for name in ("t.refusing", "t.half-way", "t.idle", "t.unknown")]
    applied = lab.apply(*optional, *PATCHES, model=scene.module)
    assert applied.patches == PATCHES
    assert not hasattr(scene.lib, "HALF")
    skipped = {e.fields["patch"]: e.fields["reason"] for e in read_entries(lab.log) if e.event == "patch.skipped"}
    assert list(skipped) == ["t.unknown", "t.refusing", "t.half-way", "t.idle"]
    assert (skipped["t.refusing"], skipped["t.half-way"]) == ("not here", "not like this")
    applied.revert()
    assert scene.differences() == []


def test_optional_entry_that_cannot_be_undone_stops_everything(lab: Lab, scene: Scene) -> None:
    """An optional entry that leaves something behind is not left out silently: the transaction fails and names it."""

    def fail() -> None:
        raise OSError("stuck")

    def refuse_half_way(ctx: Context) -> None:
        ctx.action("screw", lambda: None, fail)
        raise RefusedError("not like this")

    lab.patch("t.half-way", refuse_half_way)
    with pytest.raises(RevertError, match="screw"):
        lab.apply(*PATCHES, {"name": "t.half-way", "required": False}, model=scene.module)
    assert scene.memory.differences() == []


def test_patch_that_meets_a_broken_neighbour(lab: Lab, scene: Scene) -> None:
    """A patch whose wrapper can't be built on what is there now fails alone: the patches that were applied stay."""
    applied = scene.apply("scene.functions")

    def make(original: Any) -> Any:
        raise ValueError("never")

    lab.patch("t.broken", lambda ctx: ctx.wrap("scenelib:f", make))
    with pytest.raises(InstallError, match=r"t\.broken"):
        lab.apply("t.broken")
    assert scene.lib.f("1") == "F f(1)"
    applied.verify()
    applied.revert()
    assert scene.differences() == []


def test_neighbour_that_can_no_longer_be_built_is_named(lab: Lab) -> None:
    """If a layer above can't be built again without the one that leaves, that one stays and the revert says so."""
    lib = lab.library("atomlib", "def f(x):\n    return f'f({x})'\n")
    memory = Memory(lib)
    picky = [False]

    def make(original: Any) -> Any:
        if picky[0]:
            raise ValueError("I liked it better before")

        def wrapper(x: Any) -> str:
            return f"picky {original(x)}"

        return wrapper

    lab.patch("t.lower", lambda ctx: ctx.wrap("atomlib:f", prefixing("lower")))
    lab.patch("t.picky", lambda ctx: ctx.wrap("atomlib:f", make))
    lower, upper = lab.apply("t.lower"), lab.apply("t.picky")
    picky[0] = True
    with pytest.raises(RevertError, match="I liked it better before"):
        lower.revert()
    assert lib.f("1") == "picky lower f(1)"
    picky[0] = False
    lower.revert()
    assert lib.f("1") == "picky f(1)"
    upper.revert()
    assert memory.differences() == []
