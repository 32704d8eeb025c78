"""`redrive replay` on a real broker and store: what is sent where, what is said, and exit codes."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import time
from datetime import timedelta
from pathlib import Path
from urllib.parse import quote

import pytest

from redrive import runtime
from redrive.amqp import Properties, fields
from redrive.broker.topology import return_key
from redrive.cli import asking
from redrive.domain.lifecycle import State
from redrive.domain.policy import PolicyBook
from redrive.domain.replay import ReplayState
from redrive.errors import BrokerError
from redrive.settings import Settings
from redrive.store.store import Store
from redrive.work.conditions import Conditions
from redrive.work.replay_jobs import ReplayJobs
from redrive.work.replay_session import ReplaySession
from redrive.work.sender import Sender
from redrive.work.system_state import SystemState
from tests.services.commands import Ran
from tests.services.eventually import eventually_async
from tests.services.letters import arrival, died_in, sent_by_a_worker
from tests.services.moving import channel_to, connector, declare, take_all
from tests.services.plugin import Vhost
from tests.services.replaying import Replaying, dead, of_type, replaying

LEASE, VERDICT_AFTER = timedelta(seconds=60), timedelta(minutes=10)


@pytest.fixture
def site(vhost: Vhost, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Replaying:
    """A queue `orders`, in which letters failed."""
    asyncio.run(declare(vhost.url, "orders", "classic"))
    return replaying(vhost, tmp_path, capsys)


# What is sent


def test_letters_go_back_to_the_queue_where_they_failed_with_their_key(site: Replaying) -> None:
    asyncio.run(declare(site.vhost.url, "mail", "classic"))
    ids = site.add(dead("a"), dead("b"), dead("c", queue="mail", key="mail.sent"))
    ran = site("replay", "--queue", "*", "--output", "json")
    assert ran.code == 0, ran.err
    report = ran.document
    assert (report["state"], report["sent"], report["letters"]) == ("done", 3, 3)
    assert (report["refused"], report["skipped"], report["inDoubt"]) == (0, 0, 0)
    assert f"redrive replays show {report['id']}" in ran.err
    first, second = asyncio.run(take_all(site.vhost.url, "orders"))
    assert (first.body, second.body, first.routing_key) == (b"a", b"b", "order.created")
    assert Properties.read(first.properties).header("redrive-letter") == ids[0]
    (mail,) = asyncio.run(take_all(site.vhost.url, "mail"))
    assert mail.routing_key == "mail.sent"
    assert {site.letter(each).status for each in ids} == {State.PROCESSING}


def test_only_what_the_filters_mean_is_sent(site: Replaying) -> None:
    site.add(dead("a", put=of_type("TIMEOUT_ERROR")), dead("b", put=of_type("RATE_LIMIT_ERROR")))
    assert site("replay", "--error-type", "TIMEOUT_ERROR").code == 0
    assert site.taken() == ["a"]


def test_a_limit_takes_the_oldest(site: Replaying) -> None:
    site.add(*(dead(str(number)) for number in range(4)))
    assert site("replay", "--limit", "3").code == 0
    assert site.taken() == ["0", "1", "2"]


def test_between_batches_there_is_a_pause(site: Replaying) -> None:
    site.add(*(dead(str(number)) for number in range(3)))
    began = time.monotonic()
    ran = site("replay", "--queue", "orders", "--batch-size", "1", "--pause", "400ms")
    assert ran.code == 0
    assert time.monotonic() - began >= 0.8
    assert site.taken() == ["0", "1", "2"]


def test_a_rate_is_kept(site: Replaying) -> None:
    site.add(*(dead(str(number)) for number in range(30)))
    began = time.monotonic()
    assert site("replay", "--queue", "orders", "--rate", "20/s").code == 0
    assert time.monotonic() - began >= 0.9
    assert len(site.taken()) == 30


def test_the_report_tells_what_was_refused_and_skipped_and_why_by_reason(site: Replaying) -> None:
    site.add(*(dead(str(number), queue="gone") for number in range(2)), dead("a"))
    site.add(dead("nowhere", queue=None))
    ran = site("replay", "--yes")
    assert ran.code == 1
    rows = [line.rstrip().split(maxsplit=2) for line in ran.out.splitlines()]
    assert rows == [
        ["RESULT", "LETTERS", "WHY"],
        ["sent", "1"],
        ["refused", "2", "its queue 'gone' is gone"],
        ["skipped", "1", "nothing tells in which queue it failed; say where to with --to"],
    ]
    assert site.taken() == ["a"]


def test_what_is_outstanding_already_does_not_make_a_replay_of_others_fail(
    site: Replaying,
) -> None:
    first, _ = site.add(dead("a"), dead("b"))
    assert site("replay", first).code == 0
    words = ("--queue", "orders", "--status", "pending", "--status", "processing")
    ran = site("replay", *words)
    assert ran.code == 0
    assert "it is outstanding" in ran.out
    nothing_sent = site("replay", *words)
    assert nothing_sent.code == 1
    assert site.taken() == ["a", "b"]


def test_what_is_left_to_a_person_makes_a_replay_of_others_fail(site: Replaying) -> None:
    site.add(dead("a"), dead("nowhere", queue=None))
    assert site("replay", "--yes").code == 1
    assert site.taken() == ["a"]


def test_a_letter_is_not_sent_while_one_copy_is_outstanding(site: Replaying) -> None:
    (letter,) = site.add(dead("a"))
    assert site("replay", letter).code == 0
    again = site("replay", letter)
    assert again.code == 1
    assert "it is outstanding" in again.out
    assert site.taken() == ["a"]


def test_an_archived_letter_that_is_named_is_left_out_and_said_to_be(site: Replaying) -> None:
    (letter,) = site.add(dead("a"))

    async def archive(store: Store) -> None:
        await store.decisions.discard([letter], actor="ann", reason="not needed")

    site.with_store(archive)
    ran = site("replay", letter)
    assert ran.code == 1
    assert "it is archived: restore it first" in ran.out


def test_a_letter_may_be_named_by_how_its_id_begins(site: Replaying) -> None:
    (letter,) = site.add(dead("a"))
    assert site("replay", letter[:13]).code == 0
    assert site.taken() == ["a"]


# With few permissions, as docs/how-to/least-privilege.md has them


@pytest.mark.parametrize(
    ("bound", "write", "read", "code"),
    [
        (True, "^redrive-return$", "^$", 0),
        (False, "^(redrive-return|orders)$", "^redrive-return$", 0),
        (False, "^redrive-return$", "^redrive-return$", 1),
        (False, "^(redrive-return|orders)$", "^$", 1),
    ],
    ids=["bound", "not bound", "may not write", "may not read"],
)
def test_a_user_with_the_documented_permissions_can_replay(
    site: Replaying, bound: bool, write: str, read: str, code: int
) -> None:
    async def lay_out() -> None:
        async with channel_to(site.vhost.url) as channel:
            await channel.declare_exchange("redrive-return", "topic")
            if bound:
                await channel.bind_queue("orders", "redrive-return", return_key("orders"))

    asyncio.run(lay_out())
    user, node = f"little-{secrets.token_hex(4)}", site.vhost.node
    node.api("PUT", f"users/{user}", {"password": user, "tags": ""})
    permissions = {"configure": "^$", "write": write, "read": read}
    node.api("PUT", f"permissions/{quote(site.vhost.name, safe='')}/{user}", permissions)
    site.add(dead("a"))
    url = site.vhost.url.replace("guest:guest", f"{user}:{user}")
    try:
        ran = site("replay", "--queue", "orders", "--broker-url", url)
    finally:
        node.api("DELETE", f"users/{user}")
    assert ran.code == code, ran.out + ran.err
    assert site.taken() == (["a"] if code == 0 else [])


# What may have been consumed already


@pytest.fixture
def doubtful(site: Replaying) -> str:
    """A letter that may be a second copy of another."""
    site.add(dead("a"))
    (second,) = site.add(dead("a", redelivered=True))
    assert site.letter(second).possible_duplicate
    return second


def test_a_filter_leaves_out_what_may_have_been_consumed_already(
    site: Replaying, doubtful: str
) -> None:
    ran = site("replay", "--queue", "orders")
    assert ran.code == 1
    assert "second copy" in ran.out
    assert site.taken() == []


def test_who_names_a_doubtful_letter_means_it(site: Replaying, doubtful: str) -> None:
    assert site("replay", doubtful).code == 0
    assert site.taken() == ["a"]


def test_a_filter_takes_doubtful_letters_when_told(site: Replaying, doubtful: str) -> None:
    assert site("replay", "--queue", "orders", "--with-doubtful").code == 0
    assert site.taken() == ["a", "a"]


def test_once_the_copies_of_a_group_are_discarded_a_filter_sends_their_originals(
    site: Replaying, doubtful: str
) -> None:
    group = site.letter(doubtful).fingerprint
    discard = ("letters", "discard", "--group", group, "--possible-duplicate", "--yes")
    assert site(*discard).code == 0
    assert site("replay", "--group", group).code == 0
    assert site.taken() == ["a"]


# Elsewhere


def test_letters_go_to_another_queue_when_told_also_those_without_an_origin(
    site: Replaying,
) -> None:
    asyncio.run(declare(site.vhost.url, "mended", "classic"))
    site.add(dead("a"), dead("nowhere", queue=None))
    assert site("replay", "--yes", "--to", "queue:mended").code == 0
    assert site.taken("mended") == ["a", "nowhere"]
    assert site.taken() == []


def test_letters_go_to_an_exchange_when_told_with_their_own_keys(site: Replaying) -> None:
    async def lay_out() -> None:
        async with channel_to(site.vhost.url) as channel:
            await channel.declare_exchange("repair", "topic")
            await channel.declare_queue("mended", arguments={"x-queue-type": "classic"})
            await channel.bind_queue("mended", "repair", "order.*")

    asyncio.run(lay_out())
    site.add(dead("a"), dead("b", key="mail.sent"))
    ran = site("replay", "--yes", "--to", "exchange:repair")
    assert ran.code == 1
    assert "the exchange is missing (NO_ROUTE)" in ran.out
    assert site.taken("mended") == ["a"]


# In order


def test_letters_of_one_key_keep_their_order_and_none_overtakes_one_that_was_refused(
    site: Replaying,
) -> None:
    site.add(
        dead("ann-1", put={"customer": fields.longstr("ann")}),
        dead("ann-2", put={"customer": fields.longstr("ann")}, queue="gone"),
        dead("ann-3", put={"customer": fields.longstr("ann")}),
        dead("bob-1", put={"customer": fields.longstr("bob")}),
        dead("bob-2", put={"customer": fields.longstr("bob")}),
    )
    ran = site("replay", "--yes", "--ordered-by", "header:customer")
    assert ran.code == 1
    assert "a letter before it, of the same key, was not sent" in ran.out
    assert site.taken() == ["ann-1", "bob-1", "bob-2"]


def test_an_ordered_replay_stops_behind_a_batch_with_a_refusal(site: Replaying) -> None:
    bodies = [b'{"order": {"id": 7}, "n": %d}' % number for number in range(3)]
    site.add(
        dead("0", body=bodies[0]),
        dead("1", body=bodies[1], queue="gone"),
        dead("2", body=bodies[2]),
    )
    ran = site("replay", "--yes", "--ordered-by", "$.order.id", "--batch-size", "1", "--pause", "0")
    assert ran.code == 1
    assert "none may overtake it" in ran.err
    assert site.taken() == ["0"]
    (listed,) = site.json("replays", "list")["items"]
    assert (listed["state"], listed["position"]) == ("paused", 1)


def test_an_ordered_replay_that_stops_again_and_again_counts_what_it_left_out_once(
    site: Replaying,
) -> None:
    site.add(dead("ann", queue="gone"), dead("bob"), dead("cyd"))
    first = site("replay", "--yes", "--ordered-by", "$.id", "--output", "json").document
    assert first["skipped"] == 0
    for _ in range(3):
        assert site("replays", "resume", first["id"]).code == 1
        (listed,) = site.json("replays", "list")["items"]
        assert (listed["state"], listed["skipped"]) == ("paused", 0)


def test_a_resolved_letter_that_is_refused_when_it_is_sent_again_stays_resolved(
    site: Replaying,
) -> None:
    (letter,) = site.add(dead("a", queue="gone"))
    assert site("replay", letter, "--yes", "--to", "queue:orders").code == 0
    assert site("letters", "resolve", letter, "--yes").code == 0
    assert site("replay", letter, "--yes").code == 1
    shown = site.json("letters", "show", letter)
    assert (shown["status"], shown["resolution"]) == ("dlq_resolved", "operator")
    assert site("replay", "--yes").code == 3


# Whether it begins


def test_an_unhealthy_system_is_named_and_nothing_is_sent(
    site: Replaying, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.add(dead("a"))
    monkeypatch.setattr(runtime, "conditions", lambda _: unwell())
    before = site.rows()
    ran = site("replay", "--queue", "orders", healthy=True)
    assert (ran.code, ran.out) == (1, "")
    assert "the CPU is 99 % busy" in ran.err
    assert "memory is 97 % used" in ran.err
    assert "--ignore-health" in ran.err
    assert site.rows() == before


def test_nothing_that_matches_is_said_before_anybody_looks_at_the_system(
    site: Replaying, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.add(dead("a"))
    monkeypatch.setattr(runtime, "conditions", lambda _: unwell())
    ran = site("replay", "--queue", "nope", healthy=True)
    assert (ran.code, ran.err) == (3, "redrive: no letter matches; nothing was sent\n")


def test_a_dry_run_is_about_the_letters_also_while_a_replay_would_not_begin(
    site: Replaying, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.add(dead("a"))
    monkeypatch.setattr(runtime, "conditions", lambda _: unwell())
    ran = site("replay", "--queue", "orders", "--dry-run", healthy=True)
    assert ran.code == 0
    assert "a replay would not begin now: the CPU is 99 % busy" in ran.err


def test_an_unhealthy_system_is_sent_to_when_told(
    site: Replaying, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.add(dead("a"))
    monkeypatch.setattr(runtime, "conditions", lambda _: unwell())
    assert site("replay", "--queue", "orders").code == 0
    assert site.taken() == ["a"]


class Watch:
    def settles_in(self) -> float:
        return 0.0

    def state(self) -> SystemState:
        return SystemState(0.99, 0.97)


class Unlimited:
    async def spare_connections(self) -> int | None:
        return None


def unwell() -> Conditions:
    return Conditions(system=Watch(), capacity=Unlimited())  # type: ignore[arg-type]


def test_a_broker_that_cannot_be_reached_is_one_line_and_makes_no_job(site: Replaying) -> None:
    site.add(dead("a"))
    before = site.rows()
    away = f"amqp://127.0.0.1:1/{quote(site.vhost.name, safe='')}"
    ran = site("replay", "--queue", "orders", "--broker-url", away)
    assert (ran.code, ran.out, ran.err.count("\n")) == (1, "", 1)
    assert site.rows() == before


def test_a_way_back_that_may_not_be_made_is_said_of_each_letter(
    site: Replaying, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def may_not(*_: object) -> None:
        raise BrokerError("may not be made")

    monkeypatch.setattr("redrive.work.replay_session.assure_return_exchange", may_not)
    site.add(dead("a"))
    ran = site("replay", "--queue", "orders")
    assert ran.code == 1
    assert "no exchange 'redrive-return'" in ran.out


def test_without_a_filter_and_a_terminal_yes_is_required(site: Replaying) -> None:
    site.add(dead("a"))
    ran = site("replay")
    assert ran.code == 2
    assert "give --yes" in ran.err
    assert site.taken() == []


def test_on_a_terminal_more_than_one_letter_is_asked_about(
    site: Replaying, monkeypatch: pytest.MonkeyPatch
) -> None:
    questions: list[str] = []

    def say_no(question: str, **_: object) -> bool:
        questions.append(question)
        return False

    site.add(dead("a"), dead("b"))
    monkeypatch.setattr("redrive.cli.replay.is_somebody_there", lambda: True)
    monkeypatch.setattr(asking, "is_somebody_there", lambda: True)
    monkeypatch.setattr("typer.confirm", say_no)
    ran = site("replay", "--queue", "orders")
    assert ran.code == 1
    assert questions == ["Send 2 letters to queue:orders?"]
    assert site.taken() == []


def test_what_fails_while_the_question_is_read_is_not_sent_with_the_others(
    site: Replaying, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Of one that is stored late, as by another collector, the id is older than those of others.
    stored_late = dead("stored late")

    def read_and_say_yes(*_: object, **__: object) -> bool:
        site.add(stored_late, dead("meanwhile"))
        return True

    site.add(dead("a"), dead("b"))
    monkeypatch.setattr("redrive.cli.replay.is_somebody_there", lambda: True)
    monkeypatch.setattr(asking, "is_somebody_there", lambda: True)
    monkeypatch.setattr("typer.confirm", read_and_say_yes)
    assert site("replay", "--queue", "orders").code == 0
    assert site.taken() == ["a", "b"]


def test_the_question_says_where_letters_go_by_their_policies(
    site: Replaying, monkeypatch: pytest.MonkeyPatch
) -> None:
    questions: list[str] = []

    def say_no(question: str, **_: object) -> bool:
        questions.append(question)
        return False

    site.add(dead("a"), dead("b"), dead("c", key="mail.sent"), dead("d", queue=None))
    site("policy", "set", "mail.*", "--max-retries", "1", "--return-to", "exchange")
    monkeypatch.setattr("redrive.cli.replay.is_somebody_there", lambda: True)
    monkeypatch.setattr(asking, "is_somebody_there", lambda: True)
    monkeypatch.setattr("typer.confirm", say_no)
    site("replay", "--status", "pending")
    site("replay", "--status", "pending", "--limit", "2", "--to", "queue:mended")
    (asked, to) = questions
    assert asked == (
        "Send 4 letters: 2 to queue:orders, 1 to exchange:shop, 1 that do not tell where they"
        " failed?"
    )
    assert to == "Send 2 letters to queue:mended?"


def test_ctrl_c_before_there_is_a_job_says_that_nothing_was_sent(
    site: Replaying, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def interrupted(*_: object) -> list[str]:
        raise KeyboardInterrupt

    site.add(dead("a"))
    before = site.rows()
    monkeypatch.setattr(runtime, "unmet_conditions", interrupted)
    ran = site("replay", "--queue", "orders", healthy=True)
    assert (ran.code, ran.err) == (130, "redrive: interrupted; nothing was sent\n")
    assert site.rows() == before


def test_a_signal_right_before_the_job_is_made_makes_none(
    site: Replaying, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.add(dead("a"))
    before = site.rows()
    make = runtime.replay_session

    async def interrupted(settings: Settings, store: Store) -> ReplaySession:
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.sleep(0.1)
        return await make(settings, store)

    monkeypatch.setattr(runtime, "replay_session", interrupted)
    ran = site("replay", "--queue", "orders")
    assert (ran.code, ran.err) == (130, "redrive: interrupted; nothing was sent\n")
    assert site.rows() == before


WRONG_USE = [
    (["--start-date", "yesterday-ish"], "--start-date: expected a time"),
    (["--end-date", "2026-13-01"], "--end-date: expected a time"),
    (
        ["--start-date", "2026-02-11", "--end-date", "2026-02-10"],
        "--end-date: expected a time from",
    ),
    (["--min-age", "old"], "--min-age"),
    (["--status", "lost"], "--status: expected one of"),
    (["--colour", "red"], "No such option: --colour"),
    (["--queue", "orders", "--to", "somewhere"], "expected queue:NAME or exchange:NAME"),
    (["--queue", "orders", "--to", "queue:"], "expected queue:NAME or exchange:NAME"),
    (["--queue", "orders", "--ordered-by", "customer"], "expected header:NAME or a JSONPath"),
    (["--queue", "orders", "--ordered-by", "$.["], "is no JSONPath"),
    (["--queue", "orders", "--ordered-by", "$..id"], "expected the path of one, such as"),
    (["--queue", "orders", "--rate", "fast"], "--rate: expected"),
    (["--queue", "orders", "--pause", "soon"], "--pause: expected"),
    (["--queue", "orders", "--batch-size", "0"], "--batch-size"),
    (["--batch-size", "many"], "--batch-size"),
    (["abc"], "too short for an id"),
    (["--queue", "orders", "--to", "queue:\udcff"], "--to: expected text in UTF-8"),
    (["--queue", "orders", "--ordered-by", "header:\udcff"], "--ordered-by: expected text in"),
    (["--search", "\udcff"], "--search: expected text in UTF-8"),
    (["--id", "\udcff"], "--id: expected text in UTF-8"),
    (["\udcff\udcff"], "LETTER…: expected text in UTF-8"),
]


@pytest.mark.parametrize(
    ("words", "says"), WRONG_USE, ids=[ascii(" ".join(each[0])) for each in WRONG_USE]
)
def test_wrong_use_is_one_line_and_changes_nothing(
    site: Replaying, words: list[str], says: str
) -> None:
    site.add(dead("a"))
    before = site.rows()
    ran = site("replay", *words)
    assert (ran.code, ran.out) == (2, "")
    assert says in ran.err
    assert ran.err.count("\n") == 1
    assert site.rows() == before


@pytest.mark.parametrize(
    "words",
    [["--error-type", "NOTHING"], ["--error-type", "NOTHING", "--dry-run"], ["0190a0b1"]],
    ids=["replay", "dry run", "letter"],
)
def test_nothing_that_matches_is_exit_3_and_makes_no_job(site: Replaying, words: list[str]) -> None:
    site.add(dead("a"))
    assert site("replay", *words).code == 3
    assert site("replays", "list").code == 3


# Left to a worker


def test_a_detached_replay_is_made_here_and_run_by_a_worker(site: Replaying) -> None:
    site.add(dead("a"))
    made = site("replay", "--queue", "orders", "--detach")
    assert made.code == 0
    assert site.taken() == []
    replay_id = made.out.strip()

    async def work(store: Store) -> None:
        jobs = ReplayJobs(
            "worker-1",
            site.vhost.name,
            store.replays,
            lambda: Sender(connector(site.vhost.url), "redrive-return", frozenset()),
            PolicyBook,
            lease=LEASE,
            verdict_after=VERDICT_AFTER,
        )
        running = asyncio.create_task(jobs.run())

        async def done() -> bool:
            found = await store.replays.get(replay_id)
            return found is not None and found.state is ReplayState.DONE

        await eventually_async(done, what="the job is done")
        jobs.stop()
        await running

    async def exchange() -> None:
        async with channel_to(site.vhost.url) as channel:
            await channel.declare_exchange("redrive-return", "topic")

    asyncio.run(exchange())
    site.with_store(work)
    assert site.taken() == ["a"]
    assert site.json("replays", "show", replay_id)["sent"] == 1


# Jobs


def test_jobs_are_listed_newest_first_with_who_and_what(site: Replaying) -> None:
    site.add(dead("a"), dead("b", put=of_type("TIMEOUT_ERROR")))
    first = site.json("replay", "--error-type", "TIMEOUT_ERROR")["id"]
    second = site.json("replay", "--queue", "orders", "--detach")["id"]
    ran = site("replays", "list")
    assert ran.code == 0
    heading, newest, oldest = ran.out.splitlines()
    assert heading.split() == ["ID", "STATE", "PROGRESS", "WHO", "WHAT", "BEGAN"]
    assert newest.split()[:5] == [second, "running", "0", "of", "1"]
    assert oldest.split()[:5] == [first, "done", "1", "of", "1"]
    assert "error type TIMEOUT_ERROR" in oldest
    assert "cli:" in oldest


def test_a_paused_job_goes_on_where_it_was(site: Replaying) -> None:
    site.add(dead("a"))
    made = site.json("replay", "--queue", "orders", "--detach")["id"]
    assert site("replays", "pause", made[:13], "--reason", "lunch").code == 0
    shown = site("replays", "show", made)
    assert "lunch" in shown.out
    assert site("replays", "resume", made).code == 0
    assert site.taken() == ["a"]


def test_a_resumed_job_can_be_left_to_a_worker(site: Replaying) -> None:
    site.add(dead("a"))
    made = site.json("replay", "--queue", "orders", "--detach")["id"]
    site("replays", "pause", made)
    assert site.json("replays", "resume", made, "--detach")["state"] == "running"
    assert site.taken() == []


def test_a_cancelled_job_sends_nothing_more_and_cannot_be_resumed(
    site: Replaying, monkeypatch: pytest.MonkeyPatch
) -> None:
    (letter,) = site.add(dead("a"))
    made = site.json("replay", "--queue", "orders", "--detach")["id"]
    assert site("replays", "cancel", made, "--reason", "wrong queue").code == 0
    monkeypatch.setattr(runtime, "conditions", lambda _: unwell())  # which is not what to tell
    ran = site("replays", "resume", made)
    assert ran.code == 2
    assert "is cancelled" in ran.err
    assert site.taken() == []
    assert site.letter(letter).status is State.PENDING


def test_a_job_that_is_not_there_is_said_to_be(site: Replaying) -> None:
    for words in (["show"], ["pause"], ["resume"], ["cancel"]):
        ran = site("replays", *words, "0190a0b1-0000")
        assert (ran.code, ran.out) == (3, "")
        assert "no replay has an id that begins with" in ran.err


def test_show_tells_what_became_of_the_letters(site: Replaying) -> None:
    site.add(dead("a"), dead("b", queue="gone"))
    made = site.json("replay", "--yes")["id"]
    shown = site.json("replays", "show", made)
    assert shown["results"] == {"refused": 1, "sent": 1}
    assert shown["refusals"] == [{"reason": "its queue 'gone' is gone", "letters": 1}]
    text = site("replays", "show", made).out
    assert f"Replay {made}  done" in text
    assert "sent, without a verdict yet" in text


# Breakers


def test_a_breaker_can_be_forced_and_released(site: Replaying) -> None:
    assert site("breakers", "list").code == 3
    forced = site.json("breakers", "force", "orders", "open")
    assert (forced["queue"], forced["forced"], forced["state"]) == ("orders", "open", "closed")
    listed = site("breakers", "list")
    assert listed.out.splitlines()[1].split()[:3] == ["orders", "open,", "forced"]
    assert site.json("breakers", "release", "orders")["forced"] is None
    assert site("breakers", "release", "mail").code == 3
    assert site("breakers", "force", "orders", "ajar").code == 2


def test_forcing_the_breaker_of_a_queue_that_nobody_knows_is_done_and_said(
    site: Replaying,
) -> None:
    site.add(dead("a", queue="gone"))
    for known in ("orders", "gone"):
        assert site("breakers", "force", known, "open").err == ""
    ran = site("breakers", "force", "nope", "open")
    assert ran.code == 0
    assert "no letter is of 'nope', and the broker has no such queue" in ran.err
    assert "nope" in site("breakers", "list").out


@pytest.mark.parametrize(
    "words",
    [
        ["replays", "pause", "0190a0b1", "--reason", "\udcff"],
        ["replays", "cancel", "0190a0b1", "--reason", "\udcff"],
        ["breakers", "force", "\udcff", "open"],
        ["breakers", "release", "\udcff"],
        ["letters", "discard", "--queue", "orders", "--yes", "--reason", "\udcff"],
        ["policy", "set", "\udcff", "--max-retries", "1"],
        ["move", "orders", "\udcff"],
        ["peek", "\udcff"],
        ["sweep", "\udcff", "--target", "x"],
        ["sweep", "orders", "--target", "\udcff"],
        ["topology", "enroll", "\udcff"],
        ["groups", "show", "\udcff"],
    ],
    ids=lambda words: ascii(" ".join(words)),
)
def test_text_that_is_no_utf_8_is_wrong_use_everywhere(site: Replaying, words: list[str]) -> None:
    ran = site(*words)
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert "expected text in UTF-8" in ran.err


# A dry run


@pytest.mark.parametrize(
    "words",
    [["replay", "--dry-run"], ["policy", "list"], ["policy", "delete", "a", "--yes"]],
    ids=" ".join,
)
def test_what_only_reads_makes_no_store(site: Replaying, words: list[str]) -> None:
    typo = site.folder / "typo"
    ran = site(*words, "--store-url", f"sqlite:///{typo / 'x.db'}")
    assert (ran.code, ran.out) == (1, "")
    assert "there is no store" in ran.err
    assert not typo.exists()


def preview(site: Replaying, *words: str) -> tuple[Ran, dict[str, dict[str, object]]]:
    ran = site("replay", "--dry-run", *words, "--output", "json")
    items = ran.document["destinations"]
    return ran, {each["queue"] or f"exchange:{each['exchange']}": each for each in items}


def test_a_dry_run_sends_nothing_and_writes_nothing(site: Replaying) -> None:
    site.add(dead("a"), dead("b", queue="gone"), dead("nowhere", queue=None))
    rows, broker = site.rows(), site.on_the_broker()
    ran = site("replay", "--dry-run")
    assert ran.code == 1
    assert "nothing was sent" in ran.err
    assert site.rows() == rows
    assert site.on_the_broker() == broker


def test_a_dry_run_tells_how_many_go_where_and_why_others_do_not(site: Replaying) -> None:
    site.add(dead("a"), dead("bb"), dead("c", queue="gone"), dead("nowhere", queue=None))
    ran, found = preview(site)
    assert ran.code == 1
    assert (found["orders"]["letters"], found["orders"]["bytes"]) == (2, 3)
    assert (found["orders"]["exists"], found["orders"]["consumers"]) == (True, 0)
    assert found["orders"]["notTaken"] == 0
    assert found["orders"]["bound"] is False
    assert found["gone"]["obstacles"] == ["there is no such queue"]
    assert ran.document["notTaken"] == 1
    assert ran.document["leftOut"] == [
        {
            "reason": "nothing tells in which queue it failed; say where to with --to",
            "letters": 1,
        }
    ]


def test_a_dry_run_says_of_names_that_nothing_can_have_that_there_is_no_such_thing(
    site: Replaying,
) -> None:
    long = "q" * 254 + "…"
    site.add(dead("a"), dead("b", queue=long))
    ran, found = preview(site)
    assert ran.code == 1
    assert found["orders"]["notTaken"] == 0
    assert found[long]["obstacles"] == ["there is no such queue"]


def test_a_dry_run_is_exit_0_if_all_would_be_taken(site: Replaying) -> None:
    site.add(dead("a"))
    ran = site("replay", "--dry-run")
    assert ran.code == 0
    heading, row, *warnings = ran.out.splitlines()
    assert heading.split() == ["DESTINATION", "LETTERS", "SIZE", "WAITING", "CONSUMERS", "TAKEN"]
    assert row.split() == ["queue:orders", "1", "1", "B", "0", "0", "yes"]
    assert "queue:orders: it has no consumer: letters would wait there" in warnings


def test_a_dry_run_says_of_a_queue_that_dead_letters_nowhere_that_what_fails_there_is_gone(
    site: Replaying,
) -> None:
    asyncio.run(declare(site.vhost.url, "bare", "classic"))
    asyncio.run(declare(site.vhost.url, "kept", "classic", x_dead_letter_exchange="retry-exchange"))
    site.add(dead("a", queue="bare"), dead("b", queue="kept"))
    told = site("replay", "--dry-run").out
    without = "it has no dead letter exchange: what its consumer rejects is gone"
    assert f"queue:bare: {without}" in told
    assert f"queue:kept: {without}" not in told


@pytest.mark.parametrize(
    ("overflow", "says"),
    [("reject-publish", "refuses the rest"), ("drop-head", "would drop its oldest messages")],
)
def test_a_dry_run_knows_length_limits(site: Replaying, overflow: str, says: str) -> None:
    asyncio.run(declare(site.vhost.url, "small", "classic", x_max_length=2, x_overflow=overflow))
    site.add(*(dead(str(number), queue="small") for number in range(5)))
    ran, found = preview(site)
    assert ran.code == 1
    assert (found["small"]["maxLength"], found["small"]["notTaken"]) == (2, 3)
    assert says in str(found["small"]["obstacles"])


def test_a_dry_run_warns_of_a_queue_whose_messages_expire(site: Replaying) -> None:
    asyncio.run(declare(site.vhost.url, "brief", "classic", x_message_ttl=300_000))
    site.add(dead("a", queue="brief"))
    _, found = preview(site)
    assert "messages that wait there expire after 5m" in found["brief"]["warnings"]  # type: ignore[operator]


def test_a_dry_run_knows_a_breaker_that_holds(site: Replaying) -> None:
    site.add(dead("a"))
    site("breakers", "force", "orders", "open")
    ran, found = preview(site)
    assert ran.code == 1
    assert "its breaker is forced open" in str(found["orders"]["obstacles"])


def test_a_dry_run_to_an_exchange_knows_which_keys_find_a_queue(site: Replaying) -> None:
    async def lay_out() -> None:
        async with channel_to(site.vhost.url) as channel:
            await channel.declare_exchange("repair", "topic")
            await channel.bind_queue("orders", "repair", "order.*")

    asyncio.run(lay_out())
    site.add(dead("a"), dead("b", key="mail.sent"))
    ran, found = preview(site, "--to", "exchange:repair")
    assert ran.code == 1
    assert found["exchange:repair"]["notTaken"] == 1
    ran, found = preview(site, "--to", "exchange:missing")
    assert found["exchange:missing"]["obstacles"] == ["there is no such exchange"]


def test_a_dry_run_without_the_management_api_says_what_it_does_not_know(
    site: Replaying,
) -> None:
    site.add(dead("a"))
    site.redrive.settings = site.redrive.settings.replace("management_url", "# management_url")
    ran, found = preview(site)
    assert ran.code == 0
    assert found["orders"]["maxLength"] is None
    assert "not known without the management API" in str(found["orders"]["warnings"])


def test_a_dry_run_leaves_out_what_is_outstanding(site: Replaying) -> None:
    one = arrival(b"a", headers=died_in("orders"))
    (letter,) = site.add(one)
    site.with_store(lambda store: sent_by_a_worker(store, one))
    ran, _ = preview(site, letter)
    assert ran.code == 1
    assert "it is outstanding" in ran.document["leftOut"][0]["reason"]


@pytest.mark.parametrize("outstanding_is_named", [False, True])
def test_a_dry_run_has_the_exit_code_of_the_replay(
    site: Replaying, outstanding_is_named: bool
) -> None:
    """What is left out for being on its way needs nobody, unless it was asked for by name."""
    one = arrival(b"a", headers=died_in("orders"))
    (outstanding,) = site.add(one)
    site.with_store(lambda store: sent_by_a_worker(store, one))
    (other,) = site.add(dead("b"))
    words = [outstanding, other] if outstanding_is_named else ["--queue", "orders"]
    states = [] if outstanding_is_named else ["--status", "processing", "--status", "pending"]
    dry = site("replay", "--dry-run", *words, *states)
    assert dry.code == site("replay", "--yes", *words, *states).code == int(outstanding_is_named)


def test_letters_without_the_key_of_an_order_are_told_before_and_after(site: Replaying) -> None:
    site.add(dead("a", body=b'{"order": 1}'), dead("b"), dead("c", queue=None))
    (edited,) = site.add(dead("d", body=b'{"order": 4}'))
    (site.folder / "new.json").write_bytes(b"4")
    assert site("letters", "edit", edited, "--body", str(site.folder / "new.json")).code == 0
    words = ("replay", "--ordered-by", "$.order")
    dry = site(*words, "--dry-run", "--output", "json")
    assert dry.document["withoutOrder"] == 2
    told = "2 letters without a value at $.order: they keep no order"
    assert told in dry.err
    assert told in site(*words, "--yes").err
