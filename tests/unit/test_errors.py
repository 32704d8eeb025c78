"""The tree drawn in errors.py is the tree that exists."""

from __future__ import annotations

import inspect
import re
import traceback

import pytest

from redrive import errors
from redrive.errors import ChannelClosed, ConnectionClosed, RedriveError

LINE = re.compile(r"^    (?P<branch>[│├└─ ]*)(?P<name>[A-Z]\w+) {2,}\S", re.MULTILINE)


def drawn() -> dict[str, str | None]:
    """Each error of the drawing and its parent."""
    tree: dict[str, str | None] = {}
    above: list[tuple[int, str]] = []
    for match in LINE.finditer(errors.__doc__ or ""):
        depth = len(match["branch"])
        above = [(at, name) for at, name in above if at < depth]
        tree[match["name"]] = above[-1][1] if above else None
        above.append((depth, match["name"]))
    return tree


def existing() -> dict[str, str | None]:
    """Each error of the module and its parent."""
    return {
        name: each.__base__.__name__ if each is not RedriveError and each.__base__ else None
        for name, each in inspect.getmembers(errors, inspect.isclass)
        if issubclass(each, BaseException) and each.__module__ == errors.__name__
    }


def test_every_error_is_drawn_where_it_belongs() -> None:
    assert drawn() == existing()


@pytest.mark.parametrize("name", sorted(existing()))
def test_every_error_says_what_it_means(name: str) -> None:
    assert getattr(errors, name).__doc__


def test_an_error_says_what_to_do() -> None:
    assert RedriveError("wrong", remedy="mend it").remedy == "mend it"


def test_a_traceback_ends_with_what_to_do() -> None:
    error = RedriveError("wrong", remedy="mend it")
    assert traceback.format_exception(error)[-1] == "what to do: mend it\n"
    error.advise("leave it")
    assert traceback.format_exception(error)[1:] == ["what to do: leave it\n"]
    kinds = errors.CannotConnect("no")
    assert traceback.format_exception(kinds)[-1] == f"what to do: {kinds.remedy}\n"
    assert len(traceback.format_exception(errors.EditRefused("no"))) == 1


def test_an_error_without_advice_of_its_own_gives_its_kinds() -> None:
    assert errors.CannotConnect("no").remedy == errors.CannotConnect.remedy != ""


@pytest.mark.parametrize("kind", [ChannelClosed, ConnectionClosed])
def test_what_the_broker_said_is_kept(kind: type[ChannelClosed | ConnectionClosed]) -> None:
    error = kind(406, "PRECONDITION_FAILED - unknown delivery tag 1")
    assert (error.code, "406 PRECONDITION_FAILED" in str(error)) == (406, True)
