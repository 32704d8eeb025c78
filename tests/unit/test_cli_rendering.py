"""What reaches a terminal: readable, whole where it matters, and never obeyed."""

from __future__ import annotations

import io
import json
from datetime import timedelta

import pytest
from rich.console import Console

from redrive.cli import wording
from redrive.cli.letter_view import LetterView
from redrive.cli.rendering import Column, Marked, dump_json, lines, one_line, print_table
from redrive.domain.lifecycle import State
from redrive.work.redact import NO_REDACTION, Redaction
from tests.unit.work.letters import NOON, a_kept, an_envelope


def terminal(width: int = 80, *, colours: bool = False) -> Console:
    return Console(
        file=io.StringIO(),
        width=width,
        force_terminal=colours,
        color_system="standard" if colours else None,
        highlight=False,
        markup=False,
        emoji=False,
    )


def printed(out: Console) -> str:
    assert isinstance(out.file, io.StringIO)
    return out.file.getvalue()


def test_only_what_may_be_cut_is_cut() -> None:
    out = terminal(40)
    columns = (Column("ID", whole=True), Column("REASON", cut=True), Column("TYPE", cut_front=True))
    print_table(columns, [[("0123456789", "a" * 50, "java.net." + "b" * 50)]], out=out)
    _, row = printed(out).splitlines()
    shown_id, reason, kind = row.split()
    assert shown_id == "0123456789"
    assert reason == "aaaaaaaaaaaa…"
    assert kind == "…bbbbbbbbbbbb"
    assert len(row.rstrip()) <= 40


def test_what_is_narrow_leaves_its_room_to_what_is_wide() -> None:
    out = terminal(40)
    columns = (Column("A", cut=True), Column("B", cut=True))
    print_table(columns, [[("short", "b" * 33)]], out=out)
    assert "b" * 33 in printed(out)


def test_a_spare_column_is_left_out_before_others_become_unreadable() -> None:
    columns = (Column("ID", whole=True), Column("REASON", cut=True), Column("SIZE", spare=True))
    rows = [[("0123456789", "a" * 50, "1.5 KiB")]]
    wide, narrow = terminal(60), terminal(30)
    print_table(columns, rows, out=wide)
    print_table(columns, rows, out=narrow)
    assert "SIZE" in printed(wide)
    assert "SIZE" not in printed(narrow)


def test_colours_are_for_terminals_only() -> None:
    plain, colourful = terminal(), terminal(colours=True)
    for out in (plain, colourful):
        print_table(("STATE",), [[(Marked("failed", "red"),)]], out=out)
    assert "\x1b" not in printed(plain)
    assert "\x1b[31mfailed" in printed(colourful)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\nb\tc\rd", "a b c d"),
        ("\x1b[2J", "\\x1b[2J"),
        ("\x9b31m", "\\x9b31m"),
        ("\u202etxt", "\\u202etxt"),
        ("\udcff", "\\udcff"),
        ("größe [red]", "größe [red]"),
    ],
)
def test_what_a_message_holds_is_never_obeyed(text: str, shown: str) -> None:
    assert one_line(text) == shown


def test_lines_stay_lines() -> None:
    assert lines("a\r\n\tb\nc\rd\x07") == ["a", "    b", "c", "d\\x07"]


def test_json_is_valid_also_of_what_is_not_unicode() -> None:
    assert dump_json({"a": "é"}) == '{"a": "é"}'
    text = dump_json({"a": "é\ud800"})
    text.encode()
    assert json.loads(text) == {"a": "é\ud800"}


def test_json_holds_nothing_that_a_terminal_would_obey() -> None:
    held = "\x1b[2J \x7f \x9b31m \u202egnirts \u2066x"
    text = dump_json({"a": held}, indent=2)
    assert all(each.isprintable() or each == "\n" for each in text)
    assert json.loads(text) == {"a": held}


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.02, "20ms"),
        (1.5, "1.5s"),
        (2, "2s"),
        (59.9, "59s"),
        (60, "1m"),
        (3599, "59m"),
        (7200, "2h"),
        (86400 * 3, "3d"),
        (86400 * 800, "2y"),
    ],
)
def test_a_span_is_said_in_one_unit_and_rounded_down(seconds: float, words: str) -> None:
    assert wording.span(timedelta(seconds=seconds)) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(-190, "3m ago"), (-6.4, "6s ago"), (0, "just now"), (0.5, "just now"), (300, "in 5m")],
)
def test_a_time_is_said_by_how_far_it_is(seconds: float, words: str) -> None:
    assert wording.relative(NOON + timedelta(seconds=seconds), NOON) == words


def test_what_is_past_is_never_said_to_come() -> None:
    assert wording.ago(NOON + timedelta(hours=1), NOON) == "just now"
    assert wording.relative(None, NOON) == "-"


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (15 * 2**20, "15 MiB"),
        (2**50, "1024 TiB"),
    ],
)
def test_a_size_is_said_in_a_unit_that_fits(number: int, words: str) -> None:
    assert wording.size(number) == words


def test_counts_name_the_states_that_have_any() -> None:
    counted = {State.MANUAL: 3, State.PENDING: 1200, State.FAILED: 0}
    assert wording.counts(counted) == "1,200 pending, 3 manual"
    assert wording.counts({}) == "none"


def viewed(body: bytes = b"{}", *, full: bool = False, redact: Redaction = NO_REDACTION) -> str:
    out = terminal(100)
    kept = a_kept(an_envelope(body), possible_duplicate=True, duplicate_of="019c-other")
    LetterView(kept, redact, NOON + timedelta(minutes=3), out, full=full).print()
    return printed(out)


def test_a_letter_is_shown_with_all_that_matters() -> None:
    text = viewed(b'{"amount":1.10}')
    for part in (
        "pending",
        "2026-02-11 12:00:07 UTC (3m ago), from dlq-queue",
        "queue payments, exchange shop, key payment.created, vhost /",
        "3 retries before it was dead, 0 revivals since",
        "payment-service, priority 1, tags payment, critical",
        "may be a second copy of 019c-other",
        "TIMEOUT_ERROR",
        "External API timeout after 5000ms",
        "at processPayment",
        '"amount": 1.10',
        "'redrive replay' sends it, 'redrive letters discard' puts it away",
        "redrive letters list --group 0123456789abcdef",
    ):
        assert part in text


def test_a_letter_whose_origin_is_unknown_says_how_it_is_sent() -> None:
    out = terminal(100)
    LetterView(a_kept(queue=None), NO_REDACTION, NOON, out).print()
    assert "'redrive replay --to queue:NAME' sends it" in printed(out)


def test_the_deaths_are_a_timeline_oldest_first_with_the_time_between() -> None:
    text = viewed()
    timeline = text[text.index("Deaths") :].splitlines()[1:6]
    assert [line.strip() for line in timeline] == [
        "● 2026-02-11 11:59:37 UTC  payments       rejected  key payment.created, exchange shop",
        "│ 30s later",
        "● 2026-02-11 12:00:07 UTC  queue.delay.1  expired 3 times",
        "│ 0ms later",
        "◆ 2026-02-11 12:00:07 UTC  dlq-queue      collected",
    ]


def test_a_long_body_is_cut_and_says_so_unless_all_is_asked_for() -> None:
    body = "\n".join(f"line {number}" for number in range(500)).encode()
    assert "… 400 lines more; --full shows all" in viewed(body)
    assert "line 499" not in viewed(body)
    assert "line 499" in viewed(body, full=True)
    assert "… 8,000 characters more" in viewed(b"x" * 10_000)
    assert "… 488 bytes more" in viewed(bytes(1000))
    assert "000003e0" in viewed(bytes(1000), full=True)


def test_a_redacted_body_says_so() -> None:
    text = viewed(b'{"pin": 98765}', redact=Redaction((), ["$.pin"]))
    assert "98765" not in text
    assert "redacted" in text
