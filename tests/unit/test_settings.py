"""Where settings come from, which place wins, and what is said of wrong ones."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

import pytest

from redrive.errors import SettingsError
from redrive.settings import Loaded, Source, load
from redrive.settings.keys import KEYS, expectation, section_in, variable
from redrive.settings.layers import read_file
from redrive.settings.section import Section
from redrive.settings.sections import Settings

SECRET = "hunter2"


class Places:
    """A working directory, a home and a system folder, each empty until a test writes to it."""

    def __init__(self, root: Path) -> None:
        self.here = root / "here" / "redrive.toml"
        self.home = root / "home"
        self.user = self.home / ".config" / "redrive" / "redrive.toml"
        self.system = root / "etc" / "redrive.toml"
        for file in (self.here, self.user, self.system):
            file.parent.mkdir(parents=True)

    def load(
        self,
        environ: Mapping[str, str] | None = None,
        /,
        *,
        flags: Mapping[str, str | None] | None = None,
        config: Path | None = None,
        **variables: str,
    ) -> Loaded:
        everything = {"HOME": str(self.home), **(environ or {}), **variables}
        return load(flags=flags, config=config, environ=everything)

    def problems(self, environ: Mapping[str, str] | None = None, /, **variables: str) -> list[str]:
        with pytest.raises(SettingsError) as caught:
            self.load({**(environ or {}), **variables})
        return str(caught.value).splitlines()


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Places:
    places = Places(tmp_path)
    monkeypatch.chdir(places.here.parent)
    monkeypatch.setattr("redrive.settings.layers.SYSTEM_FILE", places.system)
    return places


def broker(host: str) -> str:
    return f'[broker]\nurl = "amqp://{host}/"\n'


def test_without_any_file_or_variable_the_defaults_are_those_of_the_documentation(
    places: Places,
) -> None:
    loaded = places.load()
    settings = loaded.settings
    assert settings.broker.url.reveal() == "amqp://guest:guest@127.0.0.1:5672/"
    assert settings.broker.management_url is None
    assert settings.broker.in_flight == 64_000_000
    assert settings.topology.tiers == tuple(timedelta(seconds=n) for n in (10, 15, 20))
    assert settings.topology.names.delay_queue == "queue.delay.{n}"
    assert settings.policy == ()
    assert settings.classify == ()
    assert settings.worker.delays == tuple(timedelta(minutes=n) for n in (1, 5, 15, 30, 60))
    assert settings.worker.schedule == "0 2,3,4 * * *"
    assert {entry.source for entry in loaded.entries()} == {Source("default")}


def test_the_nearest_place_wins_and_every_value_knows_its_place(places: Places) -> None:
    def url_and_source(loaded: Loaded) -> tuple[str, str, str]:
        source = loaded.sources["broker.url"]
        return loaded.settings.broker.url.reveal(), source.kind, source.name

    places.system.write_text(broker("system"))
    assert url_and_source(places.load()) == ("amqp://system/", "file", str(places.system))
    places.user.write_text(broker("user"))
    assert url_and_source(places.load()) == ("amqp://user/", "file", str(places.user))
    places.here.write_text(broker("here"))
    assert url_and_source(places.load()) == ("amqp://here/", "file", str(places.here))

    environ: dict[str, str] = {}
    for name in ("CLOUDAMQP_URL", "AMQP_URL", "RABBITMQ_URL", "REDRIVE_BROKER__URL"):
        environ[name] = f"amqp://{name.lower()}/"
        assert url_and_source(places.load(environ)) == (environ[name], "env", name)

    flagged = places.load(environ, flags={"broker.url": "amqp://flag/"})
    assert url_and_source(flagged) == ("amqp://flag/", "flag", "--broker-url")
    not_given = places.load(environ, flags={"broker.url": None})
    assert not_given.sources["broker.url"].name == "REDRIVE_BROKER__URL"


def test_files_are_merged_key_by_key(places: Places) -> None:
    places.here.write_text("[broker]\nprefetch = 1\n")
    places.user.write_text('[broker]\nprefetch = 2\nin_flight = "2MB"\n')
    places.system.write_text(f'{broker("system")}prefetch = 3\nin_flight = "3MB"\n')
    found = places.load().settings.broker
    assert (found.prefetch, found.in_flight, str(found.url)) == (1, 2_000_000, "amqp://system/")


def test_a_named_file_takes_the_place_of_all_others(places: Places, tmp_path: Path) -> None:
    places.here.write_text("[broker]\nprefetch = 1\n")
    other = tmp_path / "other.toml"
    other.write_text('[broker]\nin_flight = "2MB"\n')
    loaded = places.load(config=other)
    assert loaded.settings.broker.prefetch == 1000
    assert loaded.sources["broker.in_flight"] == Source("file", str(other))


def test_a_named_file_that_does_not_exist_is_an_error(places: Places, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"gone\.toml: no such file"):
        places.load(config=tmp_path / "gone.toml")


def test_folders_follow_xdg_where_it_is_set_to_an_absolute_path(
    places: Places, tmp_path: Path
) -> None:
    file = tmp_path / "xdg" / "redrive" / "redrive.toml"
    file.parent.mkdir(parents=True)
    file.write_text("[broker]\nprefetch = 7\n")
    loaded = places.load(XDG_CONFIG_HOME=str(tmp_path / "xdg"), XDG_STATE_HOME="/state")
    assert loaded.settings.broker.prefetch == 7
    assert loaded.settings.store.url.reveal() == "sqlite:////state/redrive/redrive.db"
    relative = places.load(XDG_STATE_HOME="state").settings.store.url.reveal()
    assert relative == f"sqlite:///{places.home}/.local/state/redrive/redrive.db"


def test_a_user_without_a_home_is_asked_for_a_store(places: Places) -> None:
    (problem,) = places.problems(HOME="")
    assert problem.startswith("store.url: expected a sqlite:////absolute/path or a postgresql://")
    assert problem.endswith("got nothing")
    loaded = places.load(HOME="", REDRIVE_STORE__URL="postgresql://h/db")
    assert loaded.settings.store.url.reveal() == "postgresql://h/db"


def test_every_key_has_its_variable(places: Places) -> None:
    loaded = places.load(
        REDRIVE_TOPOLOGY__TIERS="250ms, 1h30m",
        REDRIVE_TOPOLOGY__NAMES__DLQ_QUEUE="dead",
        REDRIVE_BROKER__PREFETCH="5",
        REDRIVE_POLICY='[{"name": "order.*", "max_retries": 5, "retry_expired": true}]',
    )
    settings = loaded.settings
    assert settings.topology.tiers == (timedelta(milliseconds=250), timedelta(minutes=90))
    assert settings.topology.names.dlq_queue == "dead"
    assert settings.broker.prefetch == 5
    assert settings.policy[0].name == "order.*"
    assert settings.policy[0].max_retries == 5
    assert settings.policy[0].retry_expired
    assert loaded.sources["policy"] == Source("env", "REDRIVE_POLICY")


def test_an_empty_variable_counts_as_not_set(places: Places) -> None:
    empty = dict.fromkeys([*map(variable, KEYS), "RABBITMQ_URL", "AMQP_URL"], "")
    assert {entry.source.kind for entry in places.load(empty).entries()} == {"default"}


def test_variables_that_kubernetes_makes_for_a_service_called_redrive_are_no_settings(
    places: Places,
) -> None:
    loaded = places.load(
        REDRIVE_PORT="tcp://10.0.0.1:8025",
        REDRIVE_SERVICE_HOST="10.0.0.1",
        REDRIVE_PORT_8025_TCP="tcp://10.0.0.1:8025",
    )
    assert {entry.source.kind for entry in loaded.entries()} == {"default"}


def test_the_prefix_stands_before_default_names_of_queues_and_exchanges_only(
    places: Places,
) -> None:
    names = places.load(
        REDRIVE_TOPOLOGY__PREFIX="shop.", REDRIVE_TOPOLOGY__NAMES__DLQ_QUEUE="dead"
    ).settings.topology.names
    assert names.retry_queue == "shop.retry-queue"
    assert names.delay_queue == "shop.queue.delay.{n}"
    assert names.return_exchange == "shop.redrive-return"
    assert names.retry_routing_key == "retry-routing-key"
    assert names.dlq_routing_key == "dlq-routing-key"
    assert names.dlq_queue == "dead"


@pytest.mark.parametrize(
    "written", ["[2, 3, 4]", '"2,3,4"', '"2, 3, 4"', '"0  2,3,4  * * *"', '["2", "3", "4"]']
)
def test_hours_and_a_cron_expression_are_one_schedule(places: Places, written: str) -> None:
    places.here.write_text(f"[worker]\nschedule = {written}\n")
    assert places.load().settings.worker.schedule == "0 2,3,4 * * *"


def test_a_numbered_name_is_given_for_each_tier(places: Places) -> None:
    topology = places.load(REDRIVE_TOPOLOGY__TIERS="1s,2s").settings.topology
    assert topology.of_each_tier(topology.names.delayed_queue) == ("retry-queue-1", "retry-queue-2")


@pytest.mark.parametrize(
    ("key", "text", "problem"),
    [
        ("broker.prefetch", "many", "expected a whole number from 1 to 65535, got 'many'"),
        ("broker.prefetch", "0", "expected a whole number from 1 to 65535, got '0'"),
        ("broker.prefetch", "65536", "expected a whole number from 1 to 65535, got '65536'"),
        ("broker.url", "http://h/", "expected an amqp:// or amqps:// URL with a host"),
        ("broker.url", "amqp://h/,", "expected an amqp:// or amqps:// URL with a host"),
        ("broker.url", "amqp:///v", "expected an amqp:// or amqps:// URL with a host"),
        ("broker.url", "amqp://h:port/", "expected an amqp:// or amqps:// URL with a host"),
        ("broker.management_url", "h:15672", "expected an http:// or https:// URL with a host"),
        ("broker.in_flight", "64", "expected a size from 1MB to 64GB, such as '64MB' or '128MiB'"),
        ("broker.in_flight", "1KB", "expected a size from 1MB to 64GB"),
        ("store.url", "sqlite://", "expected a sqlite:////absolute/path or a postgresql:// URL"),
        ("store.url", "mysql://h/db", "expected a sqlite:////absolute/path or a postgresql:// URL"),
        ("topology.queue_type", "stream", "expected 'quorum' or 'classic', got 'stream'"),
        ("topology.prefix", "amq.", "expected at most 100 bytes"),
        ("topology.prefix", "x" * 101, "expected at most 100 bytes"),
        ("topology.names.dlq_queue", "a{n}", "expected a name of 1 to 255 bytes, without braces"),
        ("topology.names.dlq_queue", "ä" * 128, "expected a name of 1 to 255 bytes"),
        (
            "topology.names.delay_queue",
            "delay",
            "with one '{n}' for the tier's number, got 'delay'",
        ),
        ("worker.zone", "Berlin", "expected the name of a time zone, such as 'UTC' or"),
        ("worker.zone", "../etc/passwd", "expected the name of a time zone"),
        ("worker.schedule", "0 2,3,4 * *", "expected a cron expression of five fields that fires"),
        ("worker.schedule", "0 0 2,3,4 * * *", "expected a cron expression of five fields"),
        ("worker.schedule", "0 25 * * *", "expected a cron expression of five fields"),
        ("worker.schedule", "0 0 30 2 *", "expected a cron expression of five fields that fires"),
        ("worker.schedule", "2,24", "or hours such as [2, 3, 4], got '2,24'"),
        ("worker.schedule", "@daily", "expected a cron expression of five fields"),
        ("worker.default_strategy", "retry", "expected 'immediate', 'scheduled', 'conditional' or"),
        ("worker.batch", "0", "expected a whole number from 1 to 10000, got '0'"),
        ("worker.poll", "30", "expected a duration from 10ms to 1h, got '30'"),
        ("worker.lease", "2h", "expected a duration from 1s to 1h, got '2h'"),
        ("policy", "order.*=3", "expected JSON, got 'order.*=3'"),
        ("policy", '{"name": "a"}', "expected a list of tables, each with a 'name', got a table"),
    ],
)
def test_a_wrong_setting_names_the_key_its_source_what_was_expected_and_what_was_got(
    places: Places, key: str, text: str, problem: str
) -> None:
    (line,) = places.problems({variable(key): text})
    assert line.startswith(f"{key} (from {variable(key)}): ")
    assert problem in line
    assert ", got " in line


@pytest.mark.parametrize(
    ("toml", "problem"),
    [
        ("[broker]\nprefetch = true", "broker.prefetch (from FILE): expected a whole number"),
        ("[broker]\nprefetch = 3.0", "broker.prefetch (from FILE): expected a whole number"),
        ("[broker]\nurl = 5", "broker.url (from FILE): expected an amqp://"),
        ("[broker]\nin_flight = 64", "broker.in_flight (from FILE): expected a size"),
        ("broker = 5", "broker (from FILE): expected a table, got 5"),
        ('[topology]\ntiers = "10s"', "topology.tiers (from FILE): expected 1 to 100 durations"),
        ("[topology]\ntiers = []", "topology.tiers (from FILE): expected 1 to 100 durations"),
        (
            '[topology]\ntiers = ["1s", "soon"]',
            "topology.tiers[1] (from FILE): expected 1 to 100 durations from 1ms to 49d",
        ),
        ('[topology]\ntiers = ["50d"]', "topology.tiers[0] (from FILE): expected 1 to 100"),
        ("[[policy]]\nmax_retries = 1", "policy[0].name (from FILE): expected a routing key"),
        (
            '[[policy]]\nname = "a"\nmax_retries = -1',
            "policy[0].max_retries (from FILE): expected a whole number from 0 to 2147483647, got",
        ),
        (
            '[[policy]]\nname = "a"\nretry_expired = "no"',
            "policy[0].retry_expired (from FILE): expected true or false, got 'no'",
        ),
        (
            '[[policy]]\nname = "a"\nmax_retry = 1',
            "unknown setting 'policy[0].max_retry' in FILE; did you mean 'policy[0].max_retries'?",
        ),
        (
            '[[policy]]\nname = "a"\n[[policy]]\nname = "a"',
            "policy: expected every name once, got 'a' twice",
        ),
        (
            '[[classify]]\nqueue = "a"',
            "classify[0].strategy (from FILE): expected 'immediate', 'scheduled', 'conditional' or",
        ),
        (
            '[[classify]]\nqueue = ""\nstrategy = "manual"',
            "classify[0].queue (from FILE): expected text of 1 to 1000 characters, with * and ? as",
        ),
        (
            '[[classify]]\nqueue = "a"\nstrategy = "manual"\n[[classify]]\nstrategy = "manual"',
            "classify[1]: expected at least one of error_type, error_reason, queue, routing_key,",
        ),
        (
            "[worker]\nschedule = [2, 24]",
            "worker.schedule (from FILE): expected a cron expression",
        ),
        ("[worker]\nschedule = []", "worker.schedule (from FILE): expected a cron expression"),
        ("[worker]\ndelays = []", "worker.delays (from FILE): expected 1 to 100 durations"),
        (
            '[topology.names]\nretry_queue = "x"\ndlq_queue = "x"',
            "topology.names: expected different names, got 'x' for both retry_queue and dlq_queue",
        ),
        (
            '[topology.names]\nretry_exchange = "retry-exchange-3"',
            "topology.names: expected different names, got 'retry-exchange-3' for both",
        ),
        ('borker.url = "x"', "unknown setting 'borker.url' in FILE; did you mean 'broker.url'?"),
        (
            "[topology]\nname = {}",
            "unknown setting 'topology.name' in FILE; did you mean 'topology.names'?",
        ),
        ("[zzz]\nqqq = 1", "unknown setting 'zzz.qqq' in FILE; no setting has a similar name"),
        ("[broker\n", "FILE: expected TOML: "),
    ],
)
def test_a_wrong_file_is_reported_by_its_path(places: Places, toml: str, problem: str) -> None:
    places.here.write_text(toml)
    (line,) = places.problems()
    assert problem in line.replace(str(places.here), "FILE")


def test_broken_toml_is_reported_with_its_line(places: Places) -> None:
    places.here.write_text("[broker]\nprefetch = 1\nurl = amqp\n")
    assert "line 3" in places.problems()[0]


def test_a_file_that_is_not_text_or_cannot_be_read_is_reported(
    places: Places, tmp_path: Path
) -> None:
    places.here.write_bytes(b"\xff\xfe")
    places.user.mkdir()
    assert places.problems() == [
        f"{places.here}: expected UTF-8 text",
        f"{places.user}: cannot be read: Is a directory",
    ]


def test_a_folder_that_may_not_be_entered_has_no_settings_unless_they_are_named(
    tmp_path: Path,
) -> None:
    file = tmp_path / "closed" / "redrive.toml"
    file.parent.mkdir(mode=0)
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        assert read_file(file, required=False).problems == []
        assert read_file(file, required=True).problems == [
            f"{file}: cannot be read: Permission denied"
        ]
    finally:
        if root:
            os.seteuid(0)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("REDRIVE_BORKER__URL", "did you mean 'REDRIVE_BROKER__URL'?"),
        ("REDRIVE_BROKER_URL", "did you mean 'REDRIVE_BROKER__URL'?"),
        ("REDRIVE_BROKER__PREFETCHES", "did you mean 'REDRIVE_BROKER__PREFETCH'?"),
        ("REDRIVE_ZZZ__QQQ", "no setting has a similar name"),
    ],
)
def test_an_unknown_variable_is_reported_with_the_nearest_one(
    places: Places, name: str, meant: str
) -> None:
    assert places.problems({name: "x"}) == [f"unknown setting '{name}' in the environment; {meant}"]


def test_all_that_is_wrong_is_reported_together_a_line_each(places: Places) -> None:
    places.here.write_text("[broker]\nprefetch = 0\n[borker]\nurl = 1\n[[alert]]\n")
    places.system.write_text("[")
    problems = places.problems(REDRIVE_TOPOLOGY__TIERS="soon", REDRIVE_STORE__URL="x")
    assert len(problems) == 6


def test_a_wrong_value_that_a_nearer_place_replaces_does_no_harm(places: Places) -> None:
    places.here.write_text("[broker]\nprefetch = 0\n")
    assert places.load(REDRIVE_BROKER__PREFETCH="9").settings.broker.prefetch == 9


def test_a_long_wrong_value_is_cut(places: Places) -> None:
    (line,) = places.problems(REDRIVE_BROKER__PREFETCH="9" * 5000 + "x")
    assert len(line) < 300


def test_no_password_is_in_what_settings_show_of_themselves(places: Places) -> None:
    loaded = places.load(
        REDRIVE_BROKER__URL=f"amqp://u:{SECRET}@a/,amqps://u:{SECRET}@b/?password={SECRET}",
        REDRIVE_BROKER__MANAGEMENT_URL=f"https://u:{SECRET}@a/",
        REDRIVE_STORE__URL=f"postgresql://u:{SECRET}@h/db?password={SECRET}",
    )
    shown = [
        repr(loaded),
        str(loaded.settings),
        loaded.settings.model_dump_json(),
        str(loaded.settings.model_dump()),
        json.dumps([entry.value for entry in loaded.entries()]),
        f"{loaded.settings.broker.url}",
    ]
    assert not [text for text in shown if SECRET in text]
    assert all("u:****@" in text for text in shown)
    assert loaded.settings.store.url.reveal().count(SECRET) == 2


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize(
    "text",
    [
        f"ftp://u:{SECRET}@h/",
        f"u:{SECRET}@h",
        f"amqp://u:{SECRET}",
        f"amqp://u:p/{SECRET}@h",
        f"amqp:/u:{SECRET}@h",
        f"amqp://u:{SECRET}@a,bogus",
        f"{{}} password={SECRET}",
    ],
)
def test_no_password_is_in_an_error_whatever_was_put_where(
    places: Places, key: str, text: str
) -> None:
    error: SettingsError | None = None
    try:
        shown = repr(places.load({variable(key): text}))
    except SettingsError as raised:
        error, shown = raised, str(raised)
    texts = ("topology.", "collector.queues", "redaction.headers", "sweep.queues", "sweep.target")
    may_be_any_text = key.startswith(texts) and error is None
    assert may_be_any_text or SECRET not in shown
    # A traceback would show what the error came from.
    assert error is None or (error.__cause__ is None and error.__context__ is None)


def test_a_password_in_a_list_or_a_table_is_not_in_the_error(places: Places) -> None:
    places.here.write_text(
        f'[broker]\nurl = ["amqp://u:{SECRET}@h/"]\npassword = "{SECRET}"\n'
        f'management_url = {{password = "{SECRET}"}}\n'
    )
    problems = places.problems()
    assert len(problems) == 3
    assert SECRET not in "".join(problems)


def test_settings_cannot_be_changed(places: Places) -> None:
    settings = places.load().settings
    with pytest.raises(ValueError, match="frozen"):
        settings.broker.prefetch = 1


def test_every_setting_says_what_it_takes() -> None:
    def silent(section: type[Section]) -> list[str]:
        found = []
        for name, field in section.model_fields.items():
            inner = section_in(field)
            if inner is not None:
                found += silent(inner)
            elif not expectation(field):
                found.append(f"{section.__name__}.{name}")
        return found

    assert silent(Settings) == []
