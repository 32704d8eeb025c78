"""Globs of queue names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.domain.globs import is_glob, matching, translated

QUEUES = ["orders.dlq", "orders.eu.dlq", "orders", "dlq", "Orders.dlq", "orders.dlq\n", ""]


@pytest.mark.parametrize(
    ("pattern", "meant"),
    [
        ("*", QUEUES),
        ("*.dlq", ["orders.dlq", "orders.eu.dlq", "Orders.dlq"]),
        ("orders.*", ["orders.dlq", "orders.eu.dlq", "orders.dlq\n"]),
        ("orders*", ["orders.dlq", "orders.eu.dlq", "orders", "orders.dlq\n"]),
        ("*eu*", ["orders.eu.dlq"]),
        ("???", ["dlq"]),
        ("orders.dlq?", ["orders.dlq\n"]),
        ("?rders.dlq", ["orders.dlq", "Orders.dlq"]),
        ("orders", ["orders"]),
        ("order", []),
        ("orders?dlq", ["orders.dlq"]),
        ("**", QUEUES),
        ("?*", QUEUES[:-1]),
    ],
)
def test_a_star_is_any_text_and_a_question_mark_one_character(
    pattern: str, meant: list[str]
) -> None:
    assert matching(pattern, QUEUES) == meant


@pytest.mark.parametrize("name", ["a[b]c", "a.c", "a+c", "(a|b)", "a\\d", "^a$", "{a}", "é漢😀"])
def test_nothing_else_is_special(name: str) -> None:
    names = [name, "abc", "aXc", "a", "b", "a1", "aac"]
    assert matching(name, names) == [name]
    assert matching(f"{name}*", [name, f"{name}.dlq", "abc"]) == [name, f"{name}.dlq"]
    assert not is_glob(name)


@pytest.mark.parametrize("pattern", ["*", "a*", "?", "a?b", "*.dlq"])
def test_a_star_or_a_question_mark_makes_a_glob(pattern: str) -> None:
    assert is_glob(pattern)


@given(st.text(), st.text(), st.text())
def test_a_star_stands_for_whatever_is_between(before: str, between: str, after: str) -> None:
    plain = {ord("*"): "x", ord("?"): "x"}
    before, after = before.translate(plain), after.translate(plain)
    assert matching(f"{before}*{after}", [before + between + after]) == [before + between + after]


@given(st.text(alphabet="ab.*?", max_size=12), st.lists(st.text(alphabet="ab.", max_size=6)))
def test_what_is_meant_is_among_the_names_and_in_their_order(
    pattern: str, names: list[str]
) -> None:
    rest = iter(names)
    assert all(name in rest for name in matching(pattern, names))


@pytest.mark.parametrize(
    ("pattern", "name", "target", "found"),
    [
        ("dlq.*", "dlq.orders", "dead.*", "dead.orders"),
        ("*.dlq.?", "eu.orders.dlq.1", "*.dead.?", "eu.orders.dead.1"),
        ("dlq.*", "dlq.orders", "final", "final"),
        ("dlq", "dlq", "final", "final"),
    ],
)
def test_a_target_pattern_takes_what_the_wildcards_stood_for(
    pattern: str, name: str, target: str, found: str
) -> None:
    assert translated(pattern, name, target) == found


def test_a_target_pattern_with_other_wildcards_is_refused() -> None:
    with pytest.raises(ValueError, match="does not fit"):
        translated("dlq.*", "dlq.orders", "dead.?")
