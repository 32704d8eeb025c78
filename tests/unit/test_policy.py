"""Which policy a routing key gets, and what is said of entries that do not count."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.domain import policy as module
from redrive.domain.policy import Policy, PolicyBook, PolicyRow, is_pattern, refusal, slip


def row(id_: object, name: object, max_retries: object = 1) -> PolicyRow:
    return PolicyRow(id=id_, name=name, max_retries=max_retries)


def found(book: PolicyBook, key: str) -> tuple[str, int, str] | None:
    policy = book.find(key)
    return None if policy is None else (policy.name, policy.max_retries, policy.source)


def naive_match(pattern: str, key: str) -> bool:
    """A topic pattern, by its definition."""
    wanted = pattern.split(".")
    words = key.split(".") if key else []

    @cache
    def match(i: int, j: int) -> bool:
        if i == len(wanted):
            return j == len(words)
        if wanted[i] == "#":
            return match(i + 1, j) or (j < len(words) and match(i, j + 1))
        return j < len(words) and wanted[i] in ("*", words[j]) and match(i + 1, j + 1)

    return match(0, 0)


def naive_rank(pattern: str) -> tuple[int, int, int]:
    words = pattern.split(".")
    stars, hashes = words.count("*"), words.count("#")
    return (-(len(words) - stars - hashes), hashes, -stars)


WORDS = st.sampled_from(["a", "b", "", "c c", "a*"])
KEYS = st.lists(WORDS, max_size=6).map(".".join)
PATTERNS = (
    st.lists(st.one_of(WORDS, st.sampled_from(["*", "#"])), min_size=1, max_size=6)
    .map(".".join)
    .filter(is_pattern)
)


@given(patterns=st.lists(PATTERNS, max_size=12, unique=True), key=KEYS)
def test_the_best_matching_pattern_is_found_as_a_naive_matcher_finds_it(
    patterns: list[str], key: str
) -> None:
    book = PolicyBook([row(id_, name, id_) for id_, name in enumerate(patterns)])
    matching = [
        (naive_rank(name), id_, name) for id_, name in enumerate(patterns) if naive_match(name, key)
    ]
    expected = None if not matching else (min(matching)[2], min(matching)[1], "database")
    assert found(book, key) == expected


@given(
    names=st.lists(st.one_of(KEYS, PATTERNS), max_size=12),
    file_names=st.lists(st.one_of(KEYS, PATTERNS), max_size=6, unique=True),
    key=KEYS,
)
def test_the_database_comes_before_the_file_and_exact_names_before_patterns(
    names: list[str], file_names: list[str], key: str
) -> None:
    book = PolicyBook(
        [row(id_, name) for id_, name in enumerate(names)],
        [Policy(name=name, max_retries=2) for name in file_names],
    )
    order = [
        ("database", key in [name for name in names if not is_pattern(name)]),
        ("file", key in [name for name in file_names if not is_pattern(name)]),
        ("database", any(naive_match(name, key) for name in names if is_pattern(name))),
        ("file", any(naive_match(name, key) for name in file_names if is_pattern(name))),
    ]
    expected = next((source for source, matches in order if matches), None)
    policy = book.find(key)
    assert (policy and policy.source) == expected


@pytest.mark.parametrize(
    ("names", "key", "winner"),
    [
        (["order.#", "order.*"], "order.created", "order.*"),
        (["#", "*.*", "order.#"], "order.created", "order.#"),
        (["#", "*.*"], "order.created", "*.*"),
        (["#.created", "order.#"], "order.created", "#.created"),
        (["order.#", "#.created"], "order.created", "order.#"),
        (["a.#", "a.*.#"], "a.b", "a.*.#"),
        (["*"], "", None),
        (["#"], "", "#"),
        (["order.#"], "order", "order.#"),
        (["order.*"], "order", None),
        (["order*"], "orders", None),
        (["order*"], "order*", "order*"),
        (["order.*"], "order.", "order.*"),
        (["a b.*"], "a b.ü", "a b.*"),
    ],
)
def test_more_literal_words_win_then_star_over_hash_then_the_lower_id(
    names: list[str], key: str, winner: str | None
) -> None:
    policy = PolicyBook([row(id_, name) for id_, name in enumerate(names)]).find(key)
    assert (policy and policy.name) == winner


def test_a_pattern_of_many_hashes_does_not_take_for_ever() -> None:
    book = PolicyBook([row(1, ".".join(["#", "a"] * 24))])
    assert book.find(".".join(["a"] * 127)) is not None
    assert book.find(".".join(["a"] * 126 + ["b"])) is None


def test_of_duplicate_names_the_highest_id_counts_and_the_others_are_shadowed() -> None:
    book = PolicyBook([row(7, "a", 7), row(9, "a", 9), row(8, "a", 8)])
    assert found(book, "a") == ("a", 9, "database")
    assert [(entry.place, entry.state, entry.reason) for entry in book.entries] == [
        ("id 7", "shadowed", "by the same name at id 9"),
        ("id 8", "shadowed", "by the same name at id 9"),
        ("id 9", "in force", ""),
    ]
    assert len(book) == 1


def test_a_row_without_a_name_is_ignored() -> None:
    book = PolicyBook([row(1, None, 5)])
    assert (len(book), book.find(""), book.problems) == (0, None, ())
    assert book.entries[0].state == "ignored"


def test_without_max_retries_the_default_counts_and_zero_is_zero() -> None:
    book = PolicyBook([row(1, "a", None), row(2, "b", 0)])
    assert found(book, "a") == ("a", 3, "database")
    assert found(book, "b") == ("b", 0, "database")


@pytest.mark.parametrize(
    ("name", "number", "reason"),
    [
        ("a", -1, "has max_retries -1, which is negative"),
        ("a", 2**31, "has max_retries 2147483648, which is more than 2147483647"),
        ("a", "many", "has max_retries 'many', which is no whole number"),
        ("a", 1.5, "has max_retries 1.5, which is no whole number"),
        (b"a", 1, "is not text"),
    ],
)
def test_a_row_that_cannot_be_meant_is_left_out_and_reported_with_its_id(
    name: object, number: object, reason: str
) -> None:
    book = PolicyBook([row(5, name, number), row(6, "b", 2)])
    (problem,) = book.problems
    assert (problem.place, problem.reason) == ("id 5", reason)
    assert book.find("a") is None
    assert found(book, "b") == ("b", 2, "database")


def test_a_refused_row_does_not_shadow_an_older_one_of_its_name() -> None:
    book = PolicyBook([row(1, "a", 4), row(2, "a", -1)])
    assert found(book, "a") == ("a", 4, "database")


def test_a_row_without_an_id_as_sqlite_allows_counts_for_least() -> None:
    assert found(PolicyBook([row(None, "a", 1), row(-5, "a", 2)]), "a") == ("a", 2, "database")


def test_the_same_name_in_the_file_is_shadowed_and_the_first_of_two_files_counts() -> None:
    book = PolicyBook(
        [row(1, "a", 1)],
        [
            Policy(name="a", max_retries=2),
            Policy(name="b", max_retries=3),
            Policy(name="b", max_retries=4, source="properties"),
        ],
    )
    assert found(book, "a") == ("a", 1, "database")
    assert found(book, "b") == ("b", 3, "file")
    assert [entry.reason for entry in book.entries if entry.state == "shadowed"] == [
        "by the same name in the database (id 1)",
        "by the same name in the file ([[policy]])",
    ]


def test_what_redrive_adds_to_a_row_is_in_its_policy() -> None:
    one = PolicyRow(id=1, name="a.#", max_retries=1, return_to="exchange", retry_expired=True)
    assert PolicyBook([one]).find("a.b") == Policy(
        name="a.#", max_retries=1, return_to="exchange", retry_expired=True, source="database"
    )


def test_a_key_that_repeats_is_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    book = PolicyBook([row(1, "a.#")])
    first = book.find("a.b")
    assert book.find("z") is None
    monkeypatch.setattr(PolicyBook, "_look_up", None)
    assert book.find("a.b") is first
    assert book.find("z") is None


def test_what_is_remembered_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_REMEMBERED", 10)
    book = PolicyBook([row(1, "k.*")])
    for number in range(100):
        policy = book.find(f"k.{number}")
        assert policy is not None
        assert len(book._known) <= 10


def test_books_are_equal_if_they_say_the_same() -> None:
    assert PolicyBook([row(1, "a")]) == PolicyBook([row(1, "a")])
    assert PolicyBook([row(1, "a")]) != PolicyBook([row(1, "a", 2)])


@pytest.mark.parametrize(
    ("name", "number", "problem"),
    [
        ("", 1, "expected a routing key or a pattern, got an empty name"),
        ("x" * 101, 1, "expected a name of at most 100 characters, got 101"),
        ("a\0b", 1, "expected a name that is text"),
        ("a\udc80", 1, "expected a name that is text"),
        ("a", -1, "expected max retries from 0 to 2147483647, got -1"),
        ("a", 2**31, "expected max retries from 0 to 2147483647, got 2147483648"),
    ],
)
def test_what_the_table_cannot_hold_is_refused(name: str, number: int, problem: str) -> None:
    assert (refusal(name, number) or "").startswith(problem)


@pytest.mark.parametrize("name", ["a", "x" * 100, "a b\tc", "ü.#", "'; drop table x; --", "%s"])
def test_names_may_have_spaces_and_odd_characters(name: str) -> None:
    assert refusal(name, 0) is None


@pytest.mark.parametrize("name", ["order*", "a..*b", "order.#new"])
def test_a_wildcard_within_a_word_is_pointed_out(name: str) -> None:
    assert "is no wildcard" in (slip(name) or "")


@pytest.mark.parametrize("name", ["order.*", "#", "order.created", "*.created.#"])
def test_nothing_is_said_of_a_name_as_it_should_be(name: str) -> None:
    assert slip(name) is None
