"""One patch for each verdict, found through the entry points of the folder beside this file."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from patchkit import Context, Contract, Fingerprint, Patch, PatchOptions, Probe, Symbol

TURN = "acme.core:Engine.turn"
HALF = "acme.core:half"
SOMETHING_ELSE = "n1:00000000000000000000000000000000"


class _Base(Patch):
    why = "So that there is something to show."
    how = "It would wrap the method."
    until = "the tests need it no more"

    def install(self, ctx: Context) -> None:
        ctx.wrap(TURN, lambda original: original)


class FitsOptions(PatchOptions):
    window: int = Field(default=64, description="How far to look.")
    mode: Literal["fast", "exact"] = Field(default="fast", description="Which way to go.")
    labels: tuple[str, ...] = ()


class Fits(_Base):
    name = "acme.fits"
    summary = "fits the installed library"
    upstream = "https://example.org/issues/1"
    contract = Contract(
        requires=("acme>=1,<2",),
        symbols=(
            Symbol(
                TURN,
                parameters=("self", "speed", "*", "gently="),
                calls=("half",),
                role="site",
                why="is wrapped",
            ),
            Symbol(HALF, parameters=("speed",), why="is called by what is wrapped"),
        ),
        until=("acme>=3",),
    )
    Options: ClassVar[type[PatchOptions]] = FitsOptions
    resources = ("model",)
    conflicts = ("acme.rival",)
    probe = Probe("acme_probes:proven")


class Gentle(_Base):
    name = "acme.gentle"
    summary = "comes after the one that fits"
    contract = Contract(requires=("acme>=1",), symbols=(Symbol(HALF, role="site"),))
    after = ("acme.fits",)
    probe = Probe("acme_probes:failing", ranks=2)


class Rival(_Base):
    name = "acme.rival"
    summary = "can't be combined with the one that fits"
    contract = Contract(symbols=(Symbol("acme.core:Engine.name", role="site"),))
    conflicts = ("acme.fits",)
    probe = Probe("acme_probes:refusing")


class Changed(_Base):
    name = "acme.changed"
    summary = "was proven on another body"
    contract = Contract(
        requires=("acme>=1",),
        symbols=(Symbol(HALF, role="site", fingerprints=(Fingerprint(SOMETHING_ELSE, ("1.2.0", "1.3.1"), "probe"),)),),
    )


class Broken(_Base):
    name = "acme.broken"
    summary = "touches what is gone"
    contract = Contract(
        requires=("acme>=1",),
        symbols=(
            Symbol(TURN, parameters=("self", "speed"), role="site"),
            Symbol("acme.core:halve", why="was the old name"),
        ),
    )


class Excluded(_Base):
    name = "acme.excluded"
    summary = "is for a later library"
    contract = Contract(requires=("acme>=2",), symbols=(Symbol(HALF, role="site"),))


class Retired(_Base):
    name = "acme.retired"
    summary = "is not needed any more"
    contract = Contract(requires=("acme>=1",), symbols=(Symbol(HALF, role="site"),), until=("acme>=1.3",))


class Unknown(_Base):
    name = "acme.unknown"
    summary = "is for a library that is not there"
    contract = Contract(requires=("nowhere>=1",), symbols=(Symbol("nowhere.core:f", role="site"),))
