"""Whatever people, files and other programs write is understood or refused; nothing else happens.

The wire, properties, headers, bodies, exports and patches have tests of this kind beside their own.
Here are the languages that remain: settings, filters, moments, conditions and receipts.
"""

from __future__ import annotations

import contextlib
import json
import tomllib
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from redrive.cli.filters import Selection, filtered
from redrive.cli.invocation import Invocation
from redrive.domain.condition_reader import ConditionRefused, parse
from redrive.domain.durations import parse_duration
from redrive.domain.measures import COUNTERS, MEASURES
from redrive.domain.moments import read_moment
from redrive.domain.sizes import parse_size
from redrive.errors import SettingsError
from redrive.settings import load
from redrive.settings.keys import KEYS, TABLES, VARIABLES
from redrive.work.receipts import read_receipt
from tests.unit.test_condition import moment

NOW = datetime(2026, 2, 11, 12, tzinfo=UTC)
in_one_folder = settings(
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

# Settings

_SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    st.text(max_size=20),
    st.sampled_from(["10s", "64MB", "amqp://u:p@h/", "sqlite:////x", "*", "{n}", "amq.x", "UTC"]),
)
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)
_FIELDS = sorted({key.rpartition(".")[2] for key in KEYS} | {"name", "url", "condition", "sinks"})


@given(st.binary(max_size=200))
@in_one_folder
def test_any_bytes_are_a_settings_file_or_a_settings_error(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "redrive.toml"
    file.write_bytes(content)
    with contextlib.suppress(SettingsError):
        load(config=file, environ={})


@given(
    st.dictionaries(
        st.sampled_from([*TABLES, *(key for key in KEYS if "." not in key), "nothing"]),
        st.dictionaries(st.sampled_from(_FIELDS), _VALUES, max_size=3)
        | st.lists(st.dictionaries(st.sampled_from(_FIELDS), _VALUES, max_size=3), max_size=2)
        | _VALUES,
        max_size=4,
    )
)
@in_one_folder
def test_any_tables_are_settings_or_a_settings_error_of_whole_lines(
    tmp_path: Path, tables: dict[str, Any]
) -> None:
    file = tmp_path / "redrive.toml"
    lines = (f"{_toml(name)} = {_toml(value)}\n" for name, value in tables.items())
    file.write_text("".join(lines), encoding="utf-8")
    tomllib.loads(file.read_text(encoding="utf-8"))
    problems: list[str] = []
    try:
        loaded = load(config=file, environ={"HOME": str(tmp_path)})
    except SettingsError as error:
        problems = str(error).split("\n")
    if problems:
        assert all(line.strip() for line in problems)
        return
    assert [entry.key for entry in loaded.entries()] == list(KEYS)
    json.dumps([entry.value for entry in loaded.entries()])


def _toml(value: Any) -> str:
    """A value as TOML has it on one line; it has no null."""
    if isinstance(value, dict):
        pairs = (f"{_toml(name)} = {_toml(each)}" for name, each in value.items())
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, bool):
        return str(value).lower()
    return '"none"' if value is None else repr(value)


@given(
    st.dictionaries(
        st.sampled_from(sorted(VARIABLES)),
        st.text(st.characters(exclude_characters="\0"), max_size=40)
        | _VALUES.map(lambda value: json.dumps(value, default=str)),
        max_size=4,
    )
)
@in_one_folder
def test_any_environment_is_settings_or_a_settings_error(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    (tmp_path / "redrive.toml").touch()
    with contextlib.suppress(SettingsError):
        load(config=tmp_path / "redrive.toml", environ=environ)


# What people write of sizes, durations and times

_NEARLY = st.text(alphabet="0123456789dhmsKMGiB-:.TZ+ ago", max_size=30) | st.text(max_size=30)


@given(_NEARLY)
@pytest.mark.parametrize("read", [parse_duration, parse_size])
def test_any_text_is_a_duration_or_a_size_or_neither(read: Callable[[str], Any], text: str) -> None:
    with contextlib.suppress(ValueError):
        read(text)


@given(_NEARLY, st.booleans())
def test_any_text_is_a_moment_that_letters_can_have_or_none(text: str, end: bool) -> None:
    with contextlib.suppress(ValueError, OverflowError):
        found = read_moment(text, NOW, end_of_day=end)
        assert found.tzinfo is not None
        assert found.year >= 1970


_TEXT = st.none() | _NEARLY
_TEXTS = st.none() | st.lists(_NEARLY | st.sampled_from(["pending", "Failed", "dlq_manual"]))


_OPTIONS = (
    *("error_type", "error_reason", "queue", "exchange", "routing_key", "group", "source", "tag"),
    *("start_date", "end_date", "min_age", "search"),
)


@given(
    texts=st.fixed_dictionaries(dict.fromkeys(_OPTIONS, _TEXT)),
    ids=_TEXTS,
    status=_TEXTS,
    copies=st.booleans(),
    limit=st.none() | st.integers(1, 10),
)
def test_any_filters_are_a_selection_or_wrong_use(
    texts: dict[str, str | None],
    ids: list[str] | None,
    status: list[str] | None,
    copies: bool,
    limit: int | None,
) -> None:
    found: list[Selection] = []

    def command(_: Invocation, selection: Selection) -> None:
        found.append(selection)

    with contextlib.suppress(typer.BadParameter):
        filtered(command)(
            None, **texts, id_=ids, status=status, possible_duplicate=copies, limit=limit
        )
        (selection,) = found
        assert selection.given.possible_duplicate is copies
        assert selection.given.queue == texts["queue"]
        assert selection.limit == limit


# Conditions

_WORDS = st.sampled_from(
    [
        *MEASURES,
        *COUNTERS,
        *("rate", "increase", "(", ")", ",", "and", "or", "not", "+", "-", "*", "/"),
        *("<", "<=", ">", ">=", "==", "!=", "5m", "24h", "25h", "10", "0.5", "50%", "100/min"),
        *("1e9", ".", "", "\0", "é", "''", "9" * 400),
    ]
)


@given(st.lists(_WORDS, max_size=14), st.sampled_from([" ", "", "\n"]))
def test_any_words_of_the_language_are_a_condition_or_refused(
    words: list[str], between: str
) -> None:
    try:
        found = parse(between.join(words))
    except ConditionRefused:
        return
    assert found.holds(moment(pending=3)) in (True, False)
    found.value(moment())
    assert found.promql()
    # What is shown of it is read as the same condition.
    assert parse(found.text).promql() == found.promql()


# Receipts


@given(
    st.binary(max_size=60)
    | _VALUES.map(lambda value: json.dumps(value).encode("utf-8", "surrogatepass"))
    | st.fixed_dictionaries(
        {
            "letter": st.uuids().map(str) | _SCALARS,
            "generation": st.integers() | _SCALARS,
            "queue": _SCALARS,
        }
    ).map(lambda value: json.dumps(value).encode("utf-8", "surrogatepass"))
)
def test_any_bytes_are_a_receipt_or_none(body: bytes) -> None:
    found = read_receipt(body)
    if found is not None:
        assert 0 < found.generation < 2**31
        assert len(found.letter) == 36
