"""`redrive letters edit`, `discard`, `archive`, `restore`, `resolve` on a real store."""

from __future__ import annotations

import io
import json
import os
import pty
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from redrive.amqp import fields
from redrive.amqp.properties import Properties
from redrive.domain.letter import Arrival, Kept, Resolution
from redrive.domain.lifecycle import State
from redrive.store.store import Store
from tests.services.letter_commands import LetterCommands, nothing_of_this_machine
from tests.services.letters import arrival, books_are_exact, died_in, failed, sent_by_a_worker

BODY = b'{"id": 12345678901234567890, "amount": 1.1}'
JSON = {"content_type": "application/json"}
MENDED = b'{"id": 12345678901234567890, "amount": 1.10}'


@pytest.fixture
def redrive(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> LetterCommands:
    nothing_of_this_machine(tmp_path, monkeypatch)
    return LetterCommands(capsys, tmp_path)


class Terminal(io.StringIO):
    """A stdin at which a person sits."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def person(monkeypatch: pytest.MonkeyPatch) -> Any:
    """`person("n")` answers so."""

    def answers(text: str) -> None:
        monkeypatch.setattr(sys, "stdin", Terminal(f"{text}\n"))

    return answers


def an_order(body: bytes = BODY, **headers: bytes) -> Arrival:
    return arrival(body, headers={**died_in("orders"), **headers}, properties=JSON)


def patch(*operations: dict[str, Any]) -> str:
    Path("patch.json").write_text(json.dumps(operations))
    return "patch.json"


def mending() -> str:
    Path("patch.json").write_text('[{"op": "replace", "path": "/amount", "value": 1.10}]')
    return "patch.json"


def kept(redrive: LetterCommands, letter_id: str) -> Kept:
    (found,) = [each for each in redrive.kept() if each.letter.id == letter_id]
    return found


def states(redrive: LetterCommands) -> list[State]:
    return [each.letter.status for each in redrive.kept()]


def sent(redrive: LetterCommands, *arrivals: Arrival, state: State = State.PROCESSING) -> None:
    async def work(store: Store) -> None:
        for each in arrivals:
            await sent_by_a_worker(store, each, state=state)

    redrive.with_store(work)


def exact(redrive: LetterCommands) -> bool:
    found: bool = redrive.with_store(books_are_exact)
    return found


# One letter is edited


def test_a_patch_mends_one_letter_and_leaves_the_rest_of_its_text(redrive: LetterCommands) -> None:
    (letter_id,) = redrive.add(an_order())
    code, out, err = redrive(
        "letters", "edit", letter_id[:23], "--patch", mending(), "--reason", "cents were lost"
    )
    assert (code, out) == (0, "")
    assert err.startswith(f"redrive: edited letter {letter_id}; ")
    found = kept(redrive, letter_id)
    (edit,) = found.edits
    assert (edit.body, edit.reason) == (MENDED, "cents were lost")
    assert edit.actor.startswith("cli:")
    assert found.envelope.body == BODY
    assert found.history[-1].reason == "edited: cents were lost"
    assert exact(redrive)


def test_a_body_comes_from_a_file_or_from_stdin(
    redrive: LetterCommands, monkeypatch: pytest.MonkeyPatch
) -> None:
    (letter_id,) = redrive.add(an_order())
    Path("new.json").write_bytes(b"[1]")
    assert redrive.json("letters", "edit", letter_id, "--body", "new.json") == {
        "id": letter_id,
        "edited": True,
        "edit": 1,
    }
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"[2]\n")))
    assert redrive.json("letters", "edit", letter_id, "--body", "-")["edit"] == 2
    assert [edit.body for edit in kept(redrive, letter_id).edits] == [b"[1]", b"[2]\n"]


def test_headers_and_the_content_type_are_edited(redrive: LetterCommands) -> None:
    (letter_id,) = redrive.add(an_order(n=fields.int32(1), old=fields.longstr("x")))
    changes = ("--set-header", "n=2", "--set-header", "who=ann=bob", "--remove-header", "old")
    redrive.json("letters", "edit", letter_id, *changes, "--content-type", "text/plain")
    (edit,) = kept(redrive, letter_id).edits
    properties = Properties.read(edit.properties)
    assert properties.get("content_type") == "text/plain"
    assert properties.header_field("n") == fields.int32(2)
    assert properties.header("who") == "ann=bob"
    assert properties.header_field("old") is None
    assert properties.header_field("x-death") is not None


def test_an_edit_is_undone(redrive: LetterCommands) -> None:
    (letter_id,) = redrive.add(an_order())
    redrive("letters", "edit", letter_id, "--patch", mending())
    code, out, err = redrive("letters", "edit", letter_id, "--undo")
    assert (code, out, err) == (0, "", f"redrive: undone: edit 1 of letter {letter_id}\n")
    assert kept(redrive, letter_id).edits[0].undone
    code, _, err = redrive("letters", "edit", letter_id, "--undo")
    assert code == 1
    assert "has no edit to undo" in err


def test_an_edit_that_changes_nothing_is_not_stored(redrive: LetterCommands) -> None:
    (letter_id,) = redrive.add(an_order(MENDED))
    shown = redrive.json("letters", "edit", letter_id, "--patch", mending())
    assert shown == {"id": letter_id, "edited": False, "edit": None}
    assert kept(redrive, letter_id).edits == ()


@pytest.mark.parametrize(
    ("body", "options", "reason"),
    [
        (b"{}", ["--patch", "patch.json"], "operation 1 (replace /amount): the document has no"),
        (b"nonsense", ["--patch", "patch.json"], "the body is no JSON"),
        (BODY, ["--body", "broken"], "the new body is no JSON"),
        (BODY, ["--remove-header", "absent"], "it has no header 'absent'"),
    ],
)
def test_an_edit_that_cannot_be_made_says_why_and_changes_nothing(
    redrive: LetterCommands, body: bytes, options: Sequence[str], reason: str
) -> None:
    (letter_id,) = redrive.add(an_order(body))
    Path("broken").write_text("{")
    mending()
    code, out, err = redrive("letters", "edit", letter_id, *options)
    assert (code, out) == (1, "")
    assert err.startswith(f"redrive: letter {letter_id} is not edited: ")
    assert reason in err
    assert kept(redrive, letter_id).edits == ()


def test_a_letter_that_is_outstanding_is_not_edited(redrive: LetterCommands) -> None:
    given = an_order()
    redrive.add(given)
    sent(redrive, given)
    code, _, err = redrive("letters", "edit", given.letter.id, "--patch", mending())
    assert code == 1
    assert "outstanding" in err


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--body", "new", "--patch", "patch.json"], "give one of them"),
        (["--set-header", "nothing"], "expected NAME=VALUE"),
        (["--set-header", "redrive-id=1"], "Redrive's own"),
        (["--remove-header", "x-death"], "the broker's own"),
        (["--patch", "new"], "the patch is no JSON Patch"),
        (["--undo", "--patch", "patch.json"], "--undo"),
        ([], "say what to change"),
        (["--queue", "orders", "--patch", "patch.json"], "name a letter, or give filters"),
    ],
)
def test_what_cannot_be_meant_is_wrong_use(
    redrive: LetterCommands, options: Sequence[str], reason: str
) -> None:
    (letter_id,) = redrive.add(an_order())
    Path("new").write_text("{}")
    mending()
    code, out, err = redrive("letters", "edit", letter_id, *options)
    assert (code, out) == (2, "")
    assert reason in err
    assert kept(redrive, letter_id).edits == ()


def test_without_a_letter_and_filters_nothing_is_touched(redrive: LetterCommands) -> None:
    redrive.add(an_order())
    for word in ("edit", "discard", "archive", "restore", "resolve"):
        assert redrive("letters", word, "--yes")[0] == 2


def test_a_file_that_is_not_there_is_an_error(redrive: LetterCommands) -> None:
    (letter_id,) = redrive.add(an_order())
    code, _, err = redrive("letters", "edit", letter_id, "--patch", "missing.json")
    assert code == 1
    assert "missing.json cannot be read" in err


def on_a_terminal(redrive: LetterCommands, editor: str, *arguments: str) -> tuple[int, str]:
    """Run the command at a terminal of its own, with an editor."""
    ours, its = pty.openpty()
    try:
        done = subprocess.run(
            [sys.executable, "-m", "redrive", *arguments, "--store-url", redrive.url],
            stdin=its,
            stdout=its,
            stderr=subprocess.PIPE,
            env={**os.environ, "EDITOR": editor, "VISUAL": ""},
            timeout=60,
            check=False,
        )
    finally:
        os.close(its)
        os.close(ours)
    return done.returncode, done.stderr.decode()


def test_an_editor_opens_with_the_text_of_the_body(redrive: LetterCommands) -> None:
    (letter_id,) = redrive.add(an_order())
    Path("typo.sh").write_text('sed -i -e "s/1\\.1}/1.10}/" -e "\\$a\\\\" "$1"\n')
    code, err = on_a_terminal(redrive, "sh typo.sh", "letters", "edit", letter_id)
    assert (code, err.startswith(f"redrive: edited letter {letter_id}")) == (0, True)
    assert kept(redrive, letter_id).edits[0].body == MENDED


def test_an_editor_that_fails_changes_nothing(redrive: LetterCommands) -> None:
    (letter_id,) = redrive.add(an_order())
    code, err = on_a_terminal(redrive, "false", "letters", "edit", letter_id)
    assert code == 1
    assert "ended with 1; nothing was changed" in err
    assert kept(redrive, letter_id).edits == ()


# All that match are edited


def test_a_group_is_edited_by_one_patch(redrive: LetterCommands) -> None:
    ids = redrive.add(an_order(), an_order(b'{"amount": 7}'), an_order(b'{"amount": 1.10}'))
    group = redrive.json("groups", "list")["items"][0]["fingerprint"]
    shown = redrive.json("letters", "edit", "--group", group, "--patch", mending(), "--yes")
    assert {name: shown[name] for name in ("letters", "edited", "unchanged", "unfit")} == {
        "letters": 3,
        "edited": 2,
        "unchanged": 1,
        "unfit": [],
    }
    assert shown["sample"]["id"] == ids[0]
    assert '+  "amount": 1.10' in shown["sample"]["diff"]
    assert [[edit.body for edit in each.edits] for each in redrive.kept()] == [
        [MENDED],
        [b'{"amount": 1.10}'],
        [],
    ]
    assert exact(redrive)


def test_a_sample_of_the_edit_is_shown_before_it_is_made(
    redrive: LetterCommands, person: Any
) -> None:
    (letter_id,) = redrive.add(an_order())
    person("n")
    code, out, err = redrive("letters", "edit", "--queue", "orders", "--patch", mending())
    assert code == 1
    assert f"Letter {letter_id}, as an example" in out
    assert '  +  "amount": 1.10' in out.splitlines()
    assert "it fits 1 letter" in err
    assert "nothing was changed" in err
    assert kept(redrive, letter_id).edits == ()


def test_nothing_is_edited_if_the_patch_does_not_apply_to_some(redrive: LetterCommands) -> None:
    redrive.add(an_order(), an_order(b"[]"), an_order(b"{}"))
    command = ("letters", "edit", "--queue", "orders", "--patch", mending(), "--yes")
    code, out, err = redrive(*command, "--output", "json")
    assert code == 1
    shown = json.loads(out)
    assert (shown["edited"], shown["fit"]) == (0, 1)
    assert [each["letters"] for each in shown["unfit"]] == [1, 1]
    assert "nothing was edited: --skip-unfit leaves those out" in err
    assert not any(each.edits for each in redrive.kept())


def test_letters_that_the_patch_does_not_fit_are_left_out_when_asked(
    redrive: LetterCommands,
) -> None:
    first, second = redrive.add(an_order(), an_order(b"{}"))
    command = ("letters", "edit", "--queue", "orders", "--patch", mending(), "--yes")
    code, _, err = redrive(*command, "--skip-unfit")
    assert code == 0
    assert f"left out: 1 letter, as {second}: operation 1 (replace /amount)" in err
    assert kept(redrive, first).edits[0].body == MENDED
    assert kept(redrive, second).edits == ()


def test_a_group_edit_needs_a_yes_and_something_that_fits_every_letter(
    redrive: LetterCommands,
) -> None:
    redrive.add(an_order())
    code, _, err = redrive("letters", "edit", "--queue", "orders", "--patch", mending())
    assert code == 2
    assert "give --yes" in err
    Path("new").write_text("{}")
    for options in (["--body", "new"], ["--undo"], []):
        assert redrive("letters", "edit", "--queue", "orders", "--yes", *options)[0] == 2
    assert not redrive.kept()[0].edits


def test_an_edit_of_nothing_exits_with_3(redrive: LetterCommands) -> None:
    redrive.add(an_order())
    code, out, _ = redrive(
        *("letters", "edit", "--queue", "none", "--patch", mending(), "--yes", "--output", "json")
    )
    assert (code, json.loads(out)["letters"]) == (3, 0)
    assert redrive("letters", "edit", "ffffffff", "--patch", mending())[0] == 3


def test_a_rule_of_the_settings_hides_a_part_of_the_sample(redrive: LetterCommands) -> None:
    redrive.add(an_order(b'{"card": "hunter2", "amount": 1}'))
    Path("redrive.toml").write_text('[redaction]\njson_paths = ["$.card"]\n')
    patched = patch({"op": "add", "path": "/amount", "value": 2})
    _, out, err = redrive("letters", "edit", "--queue", "orders", "--patch", patched, "--yes")
    assert '+  "amount": 2' in out
    assert "hunter2" not in out + err


# Show and export


def test_show_tells_that_an_edit_is_sent_instead(redrive: LetterCommands) -> None:
    (letter_id,) = redrive.add(an_order())
    redrive("letters", "edit", letter_id, "--patch", mending(), "--reason", "cents were lost")
    code, out, err = redrive("letters", "show", letter_id)
    assert (code, err) == (0, "")
    assert "edit 1 is sent instead of the above" in out
    assert "cents were lost" in out
    assert '+  "amount": 1.10' in out
    (edit,) = redrive.json("letters", "show", letter_id)["edits"]
    assert (edit["number"], edit["stands"], edit["body"]["data"]) == (1, True, MENDED.decode())


def test_edits_are_exported_and_come_back(redrive: LetterCommands) -> None:
    (letter_id,) = redrive.add(an_order())
    redrive("letters", "edit", letter_id, "--patch", mending())
    redrive("letters", "export", "--exact", "--to", "letters.jsonl")
    other = f"sqlite:///{redrive.folder / 'other.db'}"
    assert redrive("letters", "import", "letters.jsonl", store=other)[0] == 0
    assert redrive.kept(other) == redrive.kept()


# Decisions


def test_a_letter_is_discarded_and_restored_with_reasons(redrive: LetterCommands) -> None:
    (letter_id,) = redrive.add(failed("x"))
    code, out, err = redrive("letters", "discard", letter_id, "--reason", "a test order", "--yes")
    assert (code, out, err) == (0, "", "redrive: discarded 1 letter\n")
    assert states(redrive) == [State.ARCHIVED]
    assert redrive.json("letters", "restore", letter_id, "--reason", "it was real") == {
        "restored": 1,
        "unchanged": [],
    }
    assert states(redrive) == [State.MANUAL]
    history = kept(redrive, letter_id).history
    assert [change.reason for change in history[1:]] == [
        "discarded: a test order",
        "restored: it was real",
    ]
    assert history[1].actor.startswith("cli:")
    assert exact(redrive)


def test_a_persons_word_resolves_a_letter(redrive: LetterCommands) -> None:
    given = failed("x")
    redrive.add(given)
    sent(redrive, given)
    assert redrive("letters", "resolve", given.letter.id)[0] == 0
    found = kept(redrive, given.letter.id).letter
    assert (found.status, found.resolution) == (State.RESOLVED, Resolution.OPERATOR)
    assert exact(redrive)


def test_all_that_match_are_archived(redrive: LetterCommands) -> None:
    redrive.add(*(failed("x") for _ in range(3)), failed("x", queue="billing"))
    shown = redrive.json("letters", "archive", "--queue", "orders", "--limit", "2")
    assert shown == {"archived": 2, "unchanged": []}
    assert states(redrive).count(State.ARCHIVED) == 2
    assert redrive.json("letters", "archive", "--queue", "orders", "--status", "pending") == {
        "archived": 1,
        "unchanged": [],
    }
    assert exact(redrive)


@pytest.fixture(params=["sqlite", "postgresql"])
def on_either(request: pytest.FixtureRequest, redrive: LetterCommands) -> LetterCommands:
    if request.param == "postgresql":
        redrive.url = request.getfixturevalue("store_database")
    return redrive


def a_copy_each(*names: str, queue: str = "orders") -> list[Arrival]:
    """Messages, and behind them the second copy of each."""
    headers = [{**died_in(queue), "redrive-id": fields.longstr(name)} for name in names]
    return [arrival(headers=each) for each in (*headers, *headers)]


def test_all_possible_duplicates_of_a_group_are_settled_at_once(on_either: LetterCommands) -> None:
    redrive = on_either
    given = [*a_copy_each("a", "b"), *a_copy_each("c", queue="billing")]
    first, second, copy, other_copy, _, elsewhere = redrive.add(*given)
    group = given[0].letter.fingerprint
    of_the_group = ("--group", group, "--possible-duplicate")
    page = redrive.json("letters", "list", *of_the_group)
    assert [item["id"] for item in page["items"]] == [other_copy, copy]
    assert len(redrive.json("letters", "list", "--possible-duplicate")["items"]) == 3
    code, out, err = redrive("letters", "discard", *of_the_group, "--yes")
    assert (code, out, err) == (0, "", "redrive: discarded 2 letters\n")
    away = {each.letter.id for each in redrive.kept() if each.letter.status is State.ARCHIVED}
    assert away == {copy, other_copy}
    assert redrive("letters", "discard", *of_the_group, "--yes")[0] == 3
    assert kept(redrive, elsewhere).letter.status is State.PENDING
    assert {kept(redrive, each).letter.status for each in (first, second)} == {State.PENDING}
    assert exact(redrive)


def test_possible_duplicates_alone_are_a_filter_and_not_every_letter(
    redrive: LetterCommands,
) -> None:
    redrive.add(failed("x"))
    assert redrive("letters", "discard", "--possible-duplicate", "--yes")[0] == 3
    redrive.add(*a_copy_each("a"))
    assert redrive.json("letters", "discard", "--possible-duplicate", "--yes") == {
        "discarded": 1,
        "unchanged": [],
    }
    assert states(redrive).count(State.PENDING) == 2


def test_letters_that_may_not_change_are_counted_with_the_reason(redrive: LetterCommands) -> None:
    first, second, third = arrivals = [failed("x") for _ in range(3)]
    redrive.add(*arrivals)
    sent(redrive, second, third)
    ids = (first.letter.id, second.letter.id, third.letter.id)
    code, out, err = redrive("letters", "archive", *ids, "--output", "json")
    assert code == 1
    assert json.loads(out) == {
        "archived": 1,
        "unchanged": [
            {
                "reason": "a letter that is processing cannot become archived; wait for its"
                " verdict, or give yours with 'redrive letters resolve'",
                "letters": 2,
                "example": second.letter.id,
            }
        ],
    }
    assert "2 letters are not archived: a letter that is processing" in err
    assert kept(redrive, first.letter.id).letter.status is State.ARCHIVED


@pytest.mark.parametrize(
    ("word", "done", "taken"),
    [
        ("discard", "discarded", {State.PENDING, State.MANUAL}),
        ("archive", "archived", {State.PENDING, State.MANUAL}),
        ("resolve", "resolved", {State.PROCESSING, State.MANUAL}),
        ("restore", "restored", {State.ARCHIVED}),
    ],
)
def test_filters_mean_letters_in_states_from_which_it_is_possible(
    redrive: LetterCommands, word: str, done: str, taken: set[State]
) -> None:
    arrivals = [failed("x") for _ in range(4)]
    _, outstanding, away, back = redrive.add(*arrivals)
    sent(redrive, arrivals[1])
    redrive("letters", "archive", away, back)
    redrive("letters", "restore", back)
    before = {State.PENDING, State.PROCESSING, State.ARCHIVED, State.MANUAL}
    assert set(states(redrive)) == before
    shown = redrive.json("letters", word, "--queue", "orders", "--yes")
    assert shown == {done: len(taken), "unchanged": []}
    assert before - taken <= set(states(redrive))
    code, _, err = redrive("letters", word, "--id", outstanding, "--yes")
    assert (code, "not " + done in err) == (1, True)


def test_discarding_needs_a_yes_where_nobody_can_be_asked(redrive: LetterCommands) -> None:
    (letter_id,) = redrive.add(failed("x"))
    code, _, err = redrive("letters", "discard", letter_id)
    assert code == 2
    assert "give --yes" in err
    assert states(redrive) == [State.PENDING]


@pytest.mark.parametrize("word", ["discard", "archive"])
def test_a_person_is_asked_before_more_than_one_letter_changes(
    redrive: LetterCommands, person: Any, word: str
) -> None:
    redrive.add(failed("x"), failed("y"))
    person("n")
    code, _, err = redrive("letters", word, "--queue", "orders")
    assert code == 1
    assert f"{word.capitalize()} 2 letters?" in err
    assert states(redrive) == [State.PENDING] * 2
    person("y")
    assert redrive("letters", word, "--queue", "orders")[0] == 0
    assert states(redrive) == [State.ARCHIVED] * 2


def test_who_ends_the_question_instead_of_answering_changes_nothing(
    redrive: LetterCommands, monkeypatch: pytest.MonkeyPatch
) -> None:
    redrive.add(failed("x"), failed("y"))
    monkeypatch.setattr(sys, "stdin", Terminal(""))
    code, _, err = redrive("letters", "archive", "--queue", "orders")
    assert code == 130
    assert err.endswith("redrive: interrupted; nothing was changed\n")
    assert states(redrive) == [State.PENDING] * 2


def test_what_fails_while_the_question_is_read_is_not_discarded_with_the_others(
    redrive: LetterCommands, person: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_and_say_yes(*_: object, **__: object) -> bool:
        redrive.add(failed("meanwhile"))
        return True

    redrive.add(failed("a"), failed("b"))
    person("")
    monkeypatch.setattr("typer.confirm", read_and_say_yes)
    assert redrive("letters", "discard", "--queue", "orders")[0] == 0
    assert sorted(states(redrive)) == [State.ARCHIVED, State.ARCHIVED, State.PENDING]


def test_decisions_on_nothing_exit_with_3(redrive: LetterCommands) -> None:
    (letter_id,) = redrive.add(failed("x"))
    for word in ("discard", "archive", "restore", "resolve"):
        assert redrive("letters", word, "--queue", "none", "--yes")[0] == 3
        assert redrive("letters", word, "ffffffff", "--yes")[0] == 3
        assert redrive("letters", word, letter_id, "--queue", "orders", "--yes")[0] == 2
