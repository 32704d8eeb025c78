"""The shared filters: what people write, what it means, and what is wrong use."""

from __future__ import annotations

import inspect
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
import typer

from redrive.cli import filters
from redrive.cli.filters import Selection, filtered, whole_id
from redrive.cli.invocation import Invocation, Output, invoked
from redrive.cli.short_ids import shortened
from redrive.domain.filters import Filters
from redrive.domain.lifecycle import State
from redrive.domain.moments import read_moment

NOW = datetime(2026, 2, 11, 12, 0, tzinfo=UTC)
INVOCATION = Invocation(Output.TABLE, None, {})


class Ids:
    """Letters, as far as their ids go."""

    def __init__(self, *ids: str) -> None:
        self._ids = sorted(ids)

    async def ids_beginning(self, prefix: str, limit: int = 10) -> list[str]:
        return [each for each in self._ids if each.startswith(prefix)][:limit]


A = "019c4a00-1111-7aaa-8aaa-aaaaaaaaaaaa"
B = "019c4a00-1111-7bbb-8bbb-bbbbbbbbbbbb"
C = "019c4a00-2222-7aaa-8aaa-aaaaaaaaaaaa"
D = "019c4b00-2222-7aaa-8aaa-aaaaaaaaaaaa"
E = "019c4b00-2222-7aaa-8aaa-aaaaaaaaaaab"


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-02-10T09:00:00Z", datetime(2026, 2, 10, 9, tzinfo=UTC)),
        ("2026-02-10T09:00:00.5+02:00", datetime(2026, 2, 10, 7, 0, 0, 500000, tzinfo=UTC)),
        ("2026-02-10 09:00", datetime(2026, 2, 10, 9, tzinfo=UTC)),
        ("2026-02-10", datetime(2026, 2, 10, tzinfo=UTC)),
        ("2h", NOW - timedelta(hours=2)),
        ("1d12h ago", NOW - timedelta(hours=36)),
        ("9999999d", datetime(1970, 1, 1, tzinfo=UTC)),
        ("1066-10-14", datetime(1970, 1, 1, tzinfo=UTC)),
        ("1066-10-14T12:00:00Z", datetime(1970, 1, 1, tzinfo=UTC)),
    ],
)
def test_a_moment_is_a_time_a_day_or_how_long_ago(text: str, moment: datetime) -> None:
    assert read_moment(text, NOW) == moment


def test_a_day_as_an_end_counts_whole() -> None:
    end = read_moment("2026-02-10", NOW, end_of_day=True)
    assert end == datetime(2026, 2, 10, 23, 59, 59, 999999, tzinfo=UTC)


@pytest.mark.parametrize("text", ["", "yesterday", "2026-02-30", "2026-13-01T00:00:00Z", "120"])
def test_what_is_no_moment_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"[Ii]nvalid|range|must be"):
        read_moment(text, NOW)


def chosen(**options: Any) -> Selection:
    found: list[Selection] = []

    @filtered
    def command(invocation: Invocation, selection: Selection) -> None:
        assert invocation is INVOCATION
        found.append(selection)

    _, *parameters = inspect.signature(command).parameters.values()
    given = {each.name: each.default for each in parameters}
    assert options.keys() <= given.keys()
    command(INVOCATION, **given | options)
    return found[0]


def test_nothing_given_means_all_letters() -> None:
    assert chosen() == Selection(Filters(), (), None)


def test_every_filter_is_handed_on() -> None:
    selection = chosen(
        id_=["019c4a"],
        status=["pending", "dlq_failed", "Pending"],
        error_type="TIMEOUT*",
        error_reason="r",
        queue="q",
        exchange="e",
        routing_key="k",
        group="g",
        source="s",
        tag="t",
        possible_duplicate=True,
        start_date="2026-02-10",
        end_date="2026-02-11",
        search="x",
        limit=5,
    )
    assert selection.ids == ("019c4a",)
    assert selection.limit == 5
    assert selection.given == Filters(
        status=(State.PENDING, State.FAILED),
        error_type="TIMEOUT*",
        error_reason="r",
        queue="q",
        exchange="e",
        routing_key="k",
        group="g",
        source="s",
        tag="t",
        possible_duplicate=True,
        created_from=datetime(2026, 2, 10, tzinfo=UTC),
        created_until=datetime(2026, 2, 11, 23, 59, 59, 999999, tzinfo=UTC),
        search="x",
    )


def test_a_least_age_is_an_end_and_the_earlier_of_two_counts() -> None:
    hour = timedelta(hours=1)
    until = chosen(min_age="1h").given.created_until
    assert until is not None
    assert abs(datetime.now(UTC) - hour - until) < hour / 2
    day = datetime(2026, 2, 10, 23, 59, 59, 999999, tzinfo=UTC)
    assert chosen(min_age="1h", end_date="2026-02-10").given.created_until == day
    assert chosen(min_age="1h", end_date="2999-01-01").given.created_until != day


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"status": ["dead"]}, "--status: expected one of pending, processing, "),
        ({"start_date": "soon"}, "--start-date: expected a time such as "),
        ({"end_date": "10"}, "--end-date: expected a time such as "),
        ({"min_age": "10"}, "--min-age: expected a duration such as "),
        ({"start_date": ""}, "--start-date: expected a time such as "),
        ({"status": [""]}, "--status: expected one of pending, processing, "),
        ({"search": ""}, "--search: expected some text, got nothing"),
        ({"error_type": ""}, "--error-type: expected some text, got nothing"),
        ({"queue": ""}, "--queue: expected some text, got nothing"),
        ({"group": ""}, "--group: expected some text, got nothing"),
        ({"source": ""}, "--source: expected some text, got nothing"),
        ({"tag": ""}, "--tag: expected some text, got nothing"),
    ],
)
def test_what_cannot_be_meant_is_wrong_use(options: dict[str, Any], words: str) -> None:
    with pytest.raises(typer.BadParameter) as refused:
        chosen(**options)
    assert refused.value.message.startswith(words)


def test_an_empty_text_is_meant_where_a_letter_may_have_one() -> None:
    selection = chosen(exchange="", routing_key="", error_reason="")
    assert selection.given == Filters(exchange="", routing_key="", error_reason="")


def test_a_filtered_command_has_the_options_of_the_contract() -> None:
    app = typer.Typer()

    @app.command()
    @invoked
    @filtered
    def command(invocation: Invocation, selection: Selection, *, own: bool = False) -> None: ...

    options = {name for parameter in typer.main.get_command(app).params for name in parameter.opts}
    contract = (
        "--id --status --error-type --error-reason --queue --exchange --routing-key --group"
        " --source --tag --possible-duplicate --start-date --end-date --min-age --search --limit"
    )
    assert options >= {*contract.split(), "--own", "--output", "--config"}


async def test_the_beginning_of_an_id_is_enough_if_it_is_the_only_one() -> None:
    letters = Ids(A, B, C, D)
    assert await whole_id(letters, "019c4b") == D
    assert await whole_id(letters, f" {C.upper()} ") == C
    selection = Selection(Filters(queue="q"), ("019c4b", D, "019c4a00-2"), None)
    assert await selection.filters(letters) == Filters(queue="q", ids=(D, C))


@pytest.mark.parametrize(
    ("beginning", "words"),
    [("019c4", "'019c4' is too short for an id"), ("019c4a", f"'019c4a': {A}, {B}, {C}")],
)
async def test_too_little_of_an_id_is_wrong_use(beginning: str, words: str) -> None:
    with pytest.raises(typer.BadParameter) as refused:
        await whole_id(Ids(A, B, C, D), beginning)
    assert words in refused.value.message


async def test_an_id_that_there_is_not_matches_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as ended:
        await whole_id(Ids(A), "ffffff")
    assert ended.value.exit_code == filters.NOTHING_MATCHED
    assert capsys.readouterr().err == "redrive: no letter has an id that begins with 'ffffff'\n"


async def test_short_ids_are_unique_also_against_letters_that_are_not_listed() -> None:
    assert await shortened(Ids(A, B, C, D), [A, D]) == {A: A[:18], D: D[:8]}
    assert await shortened(Ids(A, B, C, D, E), [C, E]) == {C: C[:13], E: E}
    for each, short in (await shortened(Ids(A, B, C, D, E), [A, B, C, D, E])).items():
        assert await whole_id(Ids(A, B, C, D, E), short) == each


def test_another_zone_is_understood() -> None:
    zone = timezone(timedelta(hours=-5))
    assert read_moment("2026-02-10T09:00:00-05:00", NOW) == datetime(2026, 2, 10, 9, tzinfo=zone)
