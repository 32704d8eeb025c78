"""`redrive letters`, `groups` and `stats` on a real store: what they print, and exit with."""

from __future__ import annotations

import io
import json
import os
import select
import signal
import stat
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import text

from redrive.amqp import fields
from redrive.domain.letter import Arrival
from redrive.store.store import Store
from tests.services.letter_commands import LetterCommands, nothing_of_this_machine
from tests.services.letters import BEGAN, arrival, died_in, failed

SECRET = "hunter2"


Redrive = LetterCommands


@pytest.fixture
def redrive(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Redrive:
    nothing_of_this_machine(tmp_path, monkeypatch)
    return Redrive(capsys, tmp_path)


def at(**ago: float) -> timedelta:
    """A time for an arrival, counted back from a day after the beginning."""
    return timedelta(days=1) - timedelta(**ago)


# List


def test_letters_are_listed_newest_first_with_whole_ids_outside_a_terminal(
    redrive: Redrive,
) -> None:
    first, second = redrive.add(failed("Order 1 not found"), failed("Order 2 not found"))
    code, out, err = redrive("letters", "list")
    assert (code, err) == (0, "")
    heading, newest, oldest = out.splitlines()
    assert heading.split() == ["ID", "STATE", "ERROR", "REASON", "QUEUE", "SIZE", "COLLECTED"]
    assert newest.split()[:3] == [second, "pending", "TIMEOUT_ERROR"]
    assert "Order 1 not found" in oldest
    assert oldest.startswith(first)


def test_pages_go_on_where_the_one_before_ended(redrive: Redrive) -> None:
    ids = redrive.add(*(failed(f"{number}") for number in range(5)))
    found: list[str] = []
    after: list[str] = []
    for size in (2, 2, 1):
        page = redrive.json("letters", "list", "--limit", "2", *after)
        assert len(page["items"]) == size
        assert not {"body", "headers", "history"} & set(page["items"][0])
        found += [item["id"] for item in page["items"]]
        after = ["--after", page["next"]]
    assert after == ["--after", None]
    assert found == ids[::-1]
    _, _, err = redrive("letters", "list", "--limit", "2")
    assert err == f"redrive: there are more: go on with --after {ids[3]}\n"
    code, _, err = redrive("letters", "list", "--after", "nonsense")
    assert code == 2
    assert "'nonsense'" in err


def test_filters_choose(redrive: Redrive) -> None:
    a, b, c = redrive.add(
        arrival(b"one", headers=died_in("payments"), at=at(hours=3)),
        arrival(b"needle", properties={"app_id": "shop"}, at=at(hours=2)),
        failed("Order 7 not found"),
    )
    day = f"{BEGAN:%Y-%m-%d}"
    for options, ids in {
        ("--queue", "pay*"): [a],
        ("--source", "shop"): [b],
        ("--search", "needle"): [b],
        ("--error-type", "TIMEOUT_ERROR"): [c],
        ("--status", "pending", "--queue", "orders"): [b, c],
        ("--end-date", day): [c],
        ("--start-date", f"{day}T23:00:00Z"): [a, b],
        ("--id", a, "--id", b): [a, b],
        ("--id", a[:23]): [a],
    }.items():
        found = redrive.json("letters", "list", *options)
        assert sorted(item["id"] for item in found["items"]) == sorted(ids), options


def test_when_nothing_matches_the_exit_code_is_3(redrive: Redrive) -> None:
    redrive.add(failed("x"))
    assert redrive("letters", "list", "--queue", "none") == (3, "", "redrive: no letter matches\n")
    code, out, _ = redrive("letters", "list", "--status", "failed", "--output", "json")
    assert (code, json.loads(out)) == (3, {"items": [], "next": None})


LISTED = ("list", "--limit", "100", "--output", "json")


@pytest.mark.parametrize(
    ("words", "unbuffered", "blocking"),
    [
        (LISTED, "1", True),
        (LISTED, "", False),
        (LISTED, "1", False),
        (("list", "--limit", "100"), "1", False),
        (("export",), "1", False),
    ],
)
def test_a_slow_reader_gets_everything(
    redrive: Redrive, words: tuple[str, ...], unbuffered: str, *, blocking: bool
) -> None:
    redrive.add(*(failed(f"{number} " + "x" * 1500) for number in range(100)))
    _, whole, _ = redrive("letters", *words)
    assert len(whole) > 2 * 65_536
    reader, writer = os.pipe()
    os.set_blocking(writer, blocking)
    with (
        os.fdopen(reader, encoding="utf-8") as reading,
        subprocess.Popen(
            [sys.executable, "-m", "redrive", "letters", *words, "--store-url", redrive.url],
            stdout=writer,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        ) as running,
    ):
        os.close(writer)
        select.select([reading], [], [])
        time.sleep(0.3)  # the pipe is full long before
        if blocking:  # Ctrl-Z and fg: the write that waits ends early, as after other things
            running.send_signal(signal.SIGSTOP)
            os.waitpid(running.pid, os.WUNTRACED)
            running.send_signal(signal.SIGCONT)
            time.sleep(0.3)
        got = reading.read()
        _, err = running.communicate(timeout=30)
    assert (running.returncode, len(got)) == (0, len(whole)), err
    assert got == whole


# Show


def test_a_letter_is_shown_by_the_beginning_of_its_id(redrive: Redrive) -> None:
    (letter_id,) = redrive.add(
        arrival(
            b'{"amount":1.10}', headers={**died_in("payments"), "token": fields.longstr(SECRET)}
        )
    )
    code, out, err = redrive("letters", "show", letter_id[:13])
    assert (code, err) == (0, "")
    assert SECRET not in out
    for part in (letter_id, "queue payments", "REJECTED", '"amount": 1.10', "◆", "****"):
        assert part in out
    shown = redrive.json("letters", "show", letter_id)
    assert shown["id"] == letter_id
    assert shown["originalMessage"] == {"amount": 1.1}
    assert shown["body"]["data"] == '{"amount":1.10}'
    assert shown["history"][0]["to"] == "dlq_pending"
    assert {"name": "token", "type": "longstr", "value": "****", "redacted": True} in shown[
        "headers"
    ]


def test_an_id_that_fits_several_or_none_is_not_guessed(redrive: Redrive) -> None:
    ids = redrive.add(failed("a"), failed("b"))
    code, _, err = redrive("letters", "show", ids[0][:8])
    assert code == 2
    assert all(each in err for each in ids)
    assert redrive("letters", "show", "ffffffff")[0] == 3
    assert redrive("letters", "show", "abc")[0] == 2


def test_a_rule_of_the_settings_hides_a_part_of_the_body(redrive: Redrive) -> None:
    (letter_id,) = redrive.add(arrival(b'{"card": {"number": "hunter2"}}'))
    Path("redrive.toml").write_text('[redaction]\njson_paths = ["$.card.number"]\n')
    shown = redrive.json("letters", "show", letter_id)
    assert shown["originalMessage"] == {"card": {"number": "****"}}
    assert shown["body"]["redacted"] is True
    assert SECRET not in redrive("letters", "show", letter_id)[1]
    assert redrive.kept()[0].envelope.body == b'{"card": {"number": "hunter2"}}'


def test_a_wrong_rule_is_named_by_its_key(redrive: Redrive) -> None:
    Path("redrive.toml").write_text('[redaction]\njson_paths = ["$.a", "$.["]\n')
    code, _, err = redrive("letters", "list")
    assert code == 2
    assert "redaction.json_paths[1]" in err


# Export and import


def several() -> list[Arrival]:
    return [
        arrival(b""),
        arrival(b"\xff\x00binary", routing_key="not utf-8 \udcff"),
        arrival("größe".encode()),
        arrival(b"x" * 300_000),
        failed("Order 9 not found"),
        arrival(headers={**died_in("orders"), "authorization": fields.longstr(SECRET)}),
    ]


def test_what_was_exported_exactly_comes_back_the_same(redrive: Redrive) -> None:
    redrive.add(*several())
    file = redrive.folder / "letters.jsonl"
    code, out, err = redrive("letters", "export", "--exact", "--to", str(file))
    assert (code, out) == (0, "")
    assert err == f"redrive: exported 6 letters to {file}\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [path.name for path in redrive.folder.glob("*.part")] == []
    other = f"sqlite:///{redrive.folder / 'other.db'}"
    assert redrive("letters", "import", str(file), store=other)[2] == (
        "redrive: imported 6 letters\n"
    )
    assert redrive.kept(other) == redrive.kept()
    assert redrive("letters", "import", str(file), store=other) == (
        0,
        "",
        "redrive: imported 0 letters; 6 letters there already\n",
    )
    assert redrive("stats", "--ledger", store=other)[0] == 0


def test_an_export_is_redacted_unless_it_is_asked_to_be_exact(redrive: Redrive) -> None:
    redrive.add(*several())
    code, out, err = redrive("letters", "export")
    assert code == 0
    lines = [json.loads(line) for line in out.splitlines()]
    assert [line["redacted"] for line in lines] == [False] * 5 + [True]
    assert "1 letter redacted" in err
    Path("redacted.jsonl").write_text(out)
    code, _, err = redrive("letters", "import", "redacted.jsonl")
    assert code == 1
    assert "redacted.jsonl, line 6: was redacted" in err
    assert "nothing was imported" in err


def test_a_file_that_exists_is_not_replaced_and_none_is_made_for_nothing(redrive: Redrive) -> None:
    redrive.add(failed("x"))
    Path("there").write_text("mine")
    code, _, err = redrive("letters", "export", "--to", "there")
    assert code == 1
    assert "there exists already" in err
    assert Path("there").read_text() == "mine"
    assert redrive("letters", "export", "--queue", "none", "--to", "empty")[0] == 3
    assert not Path("empty").exists()
    code, _, err = redrive("letters", "export", "--to", "no/such/folder")
    assert code == 1
    assert "cannot be written" in err


def test_a_broken_line_is_named_and_nothing_of_the_file_is_imported(redrive: Redrive) -> None:
    redrive.add(failed("a"), failed("b"))
    _, out, _ = redrive("letters", "export")
    first, second = out.splitlines()
    other = f"sqlite:///{redrive.folder / 'other.db'}"
    Path("broken.jsonl").write_text(f"{first}\n\n{second[:-1]}\n")
    code, _, err = redrive("letters", "import", "broken.jsonl", store=other)
    assert code == 1
    assert err == ("redrive: broken.jsonl, line 3: is no JSON\nredrive: nothing was imported\n")
    assert redrive.kept(other) == []
    code, _, err = redrive("letters", "import", "missing.jsonl")
    assert code == 1
    assert "missing.jsonl cannot be read" in err
    Path("empty.jsonl").touch()
    assert redrive("letters", "import", "empty.jsonl")[0] == 3


def test_a_letter_that_stands_twice_and_differently_is_not_imported(redrive: Redrive) -> None:
    redrive.add(failed("a"))
    _, out, _ = redrive("letters", "export")
    other = f"sqlite:///{redrive.folder / 'other.db'}"
    changed = json.loads(out)
    changed["letter"]["errorReason"] = "another"
    Path("twice.jsonl").write_text(f"{out}{json.dumps(changed)}\n")
    code, _, err = redrive("letters", "import", "twice.jsonl", store=other)
    assert code == 1
    id_ = changed["letter"]["id"]
    assert err == (
        f"redrive: twice.jsonl, line 2: has the letter {id_} of line 1 again, and differently\n"
        "redrive: nothing was imported\n"
    )
    assert redrive.kept(other) == []
    Path("same.jsonl").write_text(out * 2)
    assert redrive("letters", "import", "same.jsonl", store=other)[0] == 0
    assert redrive.kept(other) == redrive.kept()


def test_letters_are_imported_from_stdin(redrive: Redrive, monkeypatch: pytest.MonkeyPatch) -> None:
    redrive.add(failed("a"), failed("b"))
    _, out, _ = redrive("letters", "export", "--limit", "1")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(out.encode())))
    other = f"sqlite:///{redrive.folder / 'other.db'}"
    code, out, _ = redrive("letters", "import", "-", "--output", "json", store=other)
    assert (code, json.loads(out)) == (0, {"read": 1, "added": 1, "present": 0})
    assert redrive.kept(other) == redrive.kept()[:1]


# Groups and stats


def test_groups_are_listed_and_shown(redrive: Redrive) -> None:
    redrive.add(*(failed(f"Order {number} not found") for number in range(3)), arrival())
    page = redrive.json("groups", "list")
    assert [group["letters"] for group in page["items"]] == [1, 3]
    assert page["next"] is None
    name = page["items"][1]["fingerprint"]
    code, out, err = redrive("groups", "list")
    assert (code, err) == (0, "")
    assert f"{name}  TIMEOUT_ERROR  Order <n> not found" in out
    assert "3 pending" in out
    code, out, _ = redrive("groups", "show", name)
    assert code == 0
    assert out.count("Order 2 not found") == 1
    assert len(redrive.json("groups", "show", name)["newest"]) == 3
    assert redrive("groups", "show", "0000000000000000")[0] == 3
    assert len(redrive.json("letters", "list", "--group", name)["items"]) == 3


def test_without_letters_there_are_no_groups(redrive: Redrive) -> None:
    redrive.add()
    assert redrive("groups", "list") == (3, "", "redrive: there is no group\n")


def test_a_store_that_is_not_there_is_not_made_by_looking(redrive: Redrive) -> None:
    code, out, err = redrive("letters", "list")
    assert (code, out) == (1, "")
    assert "there is no store" in err


def test_stats_count_by_state_and_check_the_books(redrive: Redrive) -> None:
    redrive.add(failed("Order 1 not found"), failed("Order 2 not found"))
    found = redrive.json("stats")
    assert (found["received"], found["states"]["dlq_pending"], found["balanced"]) == (2, 2, True)
    assert found["groups"][0]["letters"] == 2
    code, out, _ = redrive("stats")
    assert code == 0
    assert "2 letters received" in out
    code, out, err = redrive("stats", "--ledger")
    assert (code, err) == (0, "")
    assert "DIFFERS" not in out


def test_stats_count_what_was_marked_as_a_possible_duplicate(redrive: Redrive) -> None:
    redrive.add(failed("x"))
    assert "\n0 possible duplicates marked\n" in redrive("stats")[1]
    headers = {**died_in("orders"), "redrive-id": fields.longstr("r-1")}
    *_, copy = redrive.add(*(arrival(headers=headers) for _ in range(3)))
    redrive("letters", "discard", copy, "--yes")
    said = "2 possible duplicates marked; see 'redrive letters list --possible-duplicate'\n"
    for more in ((), ("--ledger",)):
        assert said in redrive("stats", *more)[1]
        assert redrive.json("stats", *more)["possibleDuplicates"] == 2
    assert len(redrive.json("letters", "list", "--possible-duplicate")["items"]) == 2


def test_books_that_are_not_exact_are_an_error(redrive: Redrive) -> None:
    redrive.add(failed("Order 1 not found"), failed("Order 2 not found"))

    async def steal(store: Store) -> None:
        async with store.database.writing() as connection:
            await connection.execute(
                text("DELETE FROM redrive_letter WHERE id = (SELECT max(id) FROM redrive_letter)")
            )

    redrive.with_store(steal)
    code, out, err = redrive("stats", "--ledger")
    assert code == 1
    assert "DIFFERS" in out
    assert "the books are not exact" in err
    code, out, _ = redrive("stats", "--ledger", "--output", "json")
    assert (code, json.loads(out)["exact"]) == (1, False)


def test_watching_goes_on_until_it_is_interrupted_and_ends_quietly(redrive: Redrive) -> None:
    redrive.add(failed("Order 1 not found"))
    command = [sys.executable, "-m", "redrive", "stats", "--watch", "--output", "json"]
    with subprocess.Popen(
        [*command, "--store-url", redrive.url],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as watching:
        assert watching.stdout is not None
        for _ in range(2):
            assert json.loads(watching.stdout.readline())["received"] == 1
        watching.send_signal(signal.SIGINT)
        _, err = watching.communicate(timeout=30)
    assert (watching.returncode, err) == (130, "")
