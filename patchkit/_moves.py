"""Changing who owns a layer, on many sites at once.

A move is worked out first: patches' own code (``make``) runs for it, so no lock is held. It is carried out
under the lock, if nothing else has changed meanwhile; otherwise it is worked out again.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol, cast

from ._alias import can_have_aliases
from ._layers import Entries, Layer, changed
from ._locks import LOCK
from ._shares import CLOCK, Change, Share
from ._site import ABSENT, PLACES, AnySite
from ._stacks import ModuleStack, Stack, stack_on
from .errors import ForeignChangeError, PatchkitError, SiteError

__all__ = ["Claim", "move", "move_on", "settle", "standing_stack"]


class Claim(Protocol):
    """Whoever owns a layer: on which sites it is."""

    @property
    def layer(self) -> Layer: ...

    @property
    def sites(self) -> Sequence[AnySite]: ...


class _Plan(NamedTuple):
    """What becomes of a stack: the same for all sites that it stands for, if their owners are of one type."""

    before: Stack
    meanwhile: Stack
    after: Stack
    # Whether the site is touched.
    writes: bool


_Steps = list[tuple[AnySite, _Plan]]
_Turn = Callable[[Stack, AnySite], Entries]


def standing_stack(site: AnySite) -> Stack | None:
    """Return the stack on ``site``, if there is one."""
    stack: Stack | None = PLACES.get(site.key)
    return stack


def move(claim: Claim, change: Change) -> None:
    """Change what ``claim`` has in its layer on all of its sites, or on none.

    Raises:
        ForeignChangeError: Somebody else has changed a site.
        PatchkitError: The layer can't be put on a site.
        Exception: What a layer's ``make`` raises.
    """
    _carry_out(lambda: _work_out_change(claim, change), strict=True)
    errors = _settle_heirs(claim.sites)
    if errors:
        raise errors[0]


def move_on(claim: Claim, change: Change) -> list[Exception]:
    """Do as ``move``, but go on where a site fails, and return what was raised; nothing has changed on such a site."""
    return _carry_out(lambda: _work_out_change(claim, change), strict=False) + _settle_heirs(claim.sites)


def settle(sites: Iterable[AnySite]) -> None:
    """Bring sites in line with their layers, after something that the layers depend on has changed.

    Raises:
        ForeignChangeError: Somebody else has changed a site; the others are settled.
        Exception: What a layer's ``make`` raises; the other sites are settled.
    """
    listed = list(sites)
    errors = _carry_out(lambda: _work_out(listed, _as_it_is), strict=False) + _settle_heirs(listed)
    if errors:
        raise errors[0]


def _as_it_is(stack: Stack, site: AnySite) -> Entries:
    return stack.entries


def _work_out_change(claim: Claim, change: Change) -> tuple[_Steps, list[Exception]]:
    layer = claim.layer
    return _work_out(
        claim.sites,
        lambda stack, site: changed(stack.entries, layer, change, claim, site),
        arrives=change is Share.acquire,
    )


def _work_out(sites: Iterable[AnySite], turn: _Turn, *, arrives: bool = False) -> tuple[_Steps, list[Exception]]:
    steps: _Steps = []
    errors: list[Exception] = []
    writable: set[tuple[type, str]] = set()
    plans: dict[tuple[int, type], _Plan | None] = {}
    for site in sites:
        try:
            stack: Stack | None = PLACES.get(site.key)
            if stack is None:
                if not arrives:
                    continue
                stack = _namesake(site) or stack_on(site, writable)
            if stack.is_shared:
                key = id(stack), type(site.owner)
                if key not in plans:
                    plans[key] = _plan(stack, site, turn, arrives=arrives)
                plan = plans[key]
            else:
                plan = _plan(stack, site, turn, arrives=arrives)
            if plan is not None:
                steps.append((site, plan))
        except Exception as error:
            errors.append(error)
    return steps, errors


def _plan(stack: Stack, site: AnySite, turn: _Turn, *, arrives: bool) -> _Plan | None:
    entries = turn(stack, site)
    form = stack.compose(site, entries)
    stays = stack.has_settled_on(form)
    if stays and entries is stack.entries:
        return None
    return _Plan(
        before=stack,
        meanwhile=stack.moved(entries, (*stack.ours, form)),
        after=stack.moved(entries, (form,)),
        # Whoever only leaves something to others has no business with what a stranger may have put there.
        writes=arrives or not stays,
    )


def _carry_out(work_out: Callable[[], tuple[_Steps, list[Exception]]], *, strict: bool) -> list[Exception]:
    while True:
        now = CLOCK.now
        steps, errors = work_out()
        if errors and strict:
            raise errors[0]
        with LOCK:
            if CLOCK.now != now:
                continue
            feasible: _Steps = []
            for step in steps:
                site, plan = step
                error = plan.before.foreign(site, plan.after.ours[0]) if plan.writes else None
                if error is None:
                    feasible.append(step)
                else:
                    errors.append(error)
            if errors and strict:
                raise errors[0]
            try:
                for site, plan in feasible:
                    _take(site, plan)
            finally:
                # At the end: what somebody has worked out from a state half-way is not valid.
                CLOCK.now += 1
        return errors


def _take(site: AnySite, plan: _Plan) -> None:
    _, meanwhile, after, writes = plan
    places = meanwhile.joined(site)
    if writes:
        for place in places:
            PLACES[place.key] = meanwhile
        _put(site, plan, places)
    for place in places:
        if after.entries:
            PLACES[place.key] = after
        else:
            PLACES.pop(place.key, None)


def _put(site: AnySite, plan: _Plan, places: Sequence[AnySite]) -> None:
    form = plan.after.ours[0]
    try:
        plan.meanwhile.put(site, form)
    except PatchkitError:
        raise
    except Exception as error:
        # An owner that refuses every write has refused the patch before, so there is nothing to take back.
        if all(plan.meanwhile.holds(place.read(), form, place) for place in places):
            return
        raise SiteError(
            f"{site.path}: expected an owner that lets it be changed, found that it refuses: {type(error).__name__}: "
            f"{error}. Patch a place that uses it instead."
        ) from error


def _settle_heirs(sites: Iterable[AnySite]) -> list[Exception]:
    """Build anew what stands on a class's attribute by inheritance: overrides of instances and of subclasses."""
    classes = [site for site in sites if isinstance(site.owner, type)]
    if not classes:
        return []
    # A stack doesn't know its sites, since it may stand for many; who owns its layers does.
    claims = {claim for stack in set(PLACES.values()) for entry in stack.entries for claim in entry.share.owners}
    heirs = [
        site for claim in claims for site in cast("Claim", claim).sites if any(_inherits(site, cls) for cls in classes)
    ]
    errors = _carry_out(lambda: _work_out(heirs, _as_it_is), strict=False) + _settle_heirs(heirs)
    # Where a stranger has the instance or subclass, what is below is out of reach; its own layers report the stranger.
    return [error for error in errors if not isinstance(error, ForeignChangeError)]


def _inherits(site: AnySite, ancestor: Any) -> bool:
    owner: Any = site.owner
    if site.attr != ancestor.attr or owner is ancestor.owner or owner is None:
        return False
    stack = PLACES.get(site.key)
    return (
        stack is not None
        and stack.original is ABSENT
        and issubclass(owner if isinstance(owner, type) else type(owner), ancestor.owner)
    )


def _namesake(site: AnySite) -> Stack | None:
    """Return the stack on another name of the object that ``site`` holds: both names stand for one object."""
    if not isinstance(site.owner, types.ModuleType):
        return None
    found = site.read()
    if not can_have_aliases(found):
        return None
    stacks: list[Stack] = [stack for stack in set(PLACES.values()) if isinstance(stack, ModuleStack)]
    return next((stack for stack in stacks if stack.ours[-1] is found), None)
