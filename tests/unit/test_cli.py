"""The command line: what it prints where, its exit codes, and that it never shows a traceback."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

import pytest
import typer

from redrive import __version__
from redrive.cli import app, main
from redrive.cli.invocation import Invocation
from redrive.errors import CannotConnect
from redrive.settings.keys import KEYS

SECRET = "hunter2"


@pytest.fixture(autouse=True)
def _only_this_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith("REDRIVE_") or name in {"RABBITMQ_URL", "AMQP_URL", "CLOUDAMQP_URL"}:
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    monkeypatch.setattr("redrive.settings.layers.SYSTEM_FILE", tmp_path / "system.toml")
    monkeypatch.chdir(tmp_path)


class Redrive:
    """Runs the command in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        out, err = self._capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return ended.value.code, out, err


@pytest.fixture
def redrive(capsys: pytest.CaptureFixture[str]) -> Redrive:
    return Redrive(capsys)


def raising(error: BaseException) -> Any:
    def load(_: Invocation) -> NoReturn:
        raise error

    return load


def test_the_version_is_printed(redrive: Redrive) -> None:
    assert redrive("--version") == (0, f"redrive {__version__}\n", "")


def test_help_lists_every_command(redrive: Redrive) -> None:
    code, out, err = redrive("--help")
    assert (code, err) == (0, "")
    for name, summary in app.COMMANDS.items():
        assert f"  {name}" in out
        assert summary in out


def test_without_a_command_the_help_is_shown_as_wrong_use(redrive: Redrive) -> None:
    code, out, err = redrive()
    assert (code, out) == (2, "")
    assert "Usage: redrive" in err


def test_python_m_redrive_is_the_same_command() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "redrive", "--version"], capture_output=True, text=True, check=True
    )
    assert run.stdout == f"redrive {__version__}\n"


@pytest.mark.parametrize("argument", ["--help", "--version"])
def test_help_and_version_import_nothing_that_is_slow(argument: str) -> None:
    program = (
        "import atexit, sys\n"
        "from redrive.cli import main\n"
        "slow = {'rich', 'pydantic', 'uvloop', 'asyncio', 'structlog', 'redrive.settings'}\n"
        "atexit.register(lambda: print('imported:', sorted(slow & set(sys.modules))))\n"
        f"main([{argument!r}])\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert run.stdout.endswith("imported: []\n")


def test_a_process_looks_for_garbage_less_often_and_one_that_has_guests_as_before() -> None:
    program = (
        "import atexit, gc, sys\n"
        "from redrive.cli import main\n"
        "atexit.register(lambda: print(gc.get_threshold()[0]))\n"
        "main(eval(sys.argv.pop()))\n"
    )
    looks = [
        subprocess.run(
            [sys.executable, "-c", program, "--version", words], capture_output=True, check=True
        ).stdout.splitlines()[-1]
        for words in ("None", "['--version']")
    ]
    assert looks == [b"50000", b"%d" % gc.get_threshold()[0]]


def test_config_show_lists_every_setting_with_value_and_source(redrive: Redrive) -> None:
    Path("redrive.toml").write_text('[[policy]]\nname = "order.[a-z]"\n')
    code, out, err = redrive("config", "show", "--broker-url", "amqp://flagged/")
    assert (code, err) == (0, "")
    rows = {line.split()[0]: line.split()[1:] for line in out.splitlines() if line.strip()}
    file = str(Path("redrive.toml").absolute())
    assert rows.pop("SETTING") == ["VALUE", "SOURCE"]
    assert rows["broker.url"] == ["amqp://flagged/", "--broker-url"]
    assert rows["broker.management_url"] == ["(none)", "default"]
    assert rows["topology.tiers"] == ["10s,", "15s,", "20s", "default"]
    assert rows["topology.prefix"] == ['""', "default"]
    assert rows["policy[0].name"] == ["order.[a-z]", file]
    assert rows["policy[0].retry_expired"] == ["false", file]
    assert {name.split("[")[0] for name in rows} == set(KEYS)


def test_config_show_as_json_is_an_object_by_setting(
    redrive: Redrive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RABBITMQ_URL", f"amqp://u:{SECRET}@h/")
    code, out, err = redrive("config", "show", "--output", "json")
    shown = json.loads(out)
    assert (code, err) == (0, "")
    assert set(shown) == set(KEYS)
    assert shown["broker.url"] == {
        "value": "amqp://u:****@h/",
        "source": {"kind": "env", "name": "RABBITMQ_URL"},
    }
    assert shown["store.url"] == {
        "value": "sqlite:////state/redrive/redrive.db",
        "source": {"kind": "default", "name": "default"},
    }
    assert shown["policy"]["value"] == []


@pytest.mark.parametrize("output", ["table", "json"])
def test_config_show_reads_the_named_file_and_masks_what_is_secret(
    redrive: Redrive, tmp_path: Path, output: str
) -> None:
    file = tmp_path / "other.toml"
    file.write_text(
        f'[broker]\nurl = "amqp://u:{SECRET}@a/,amqp://u:{SECRET}@b/"\n'
        f'management_url = "http://u:{SECRET}@a/"\n'
        f'[store]\nurl = "postgresql://h/db?password={SECRET}"\n'
    )
    code, out, err = redrive("config", "show", "--config", str(file), "--output", output)
    assert (code, err) == (0, "")
    assert SECRET not in out
    assert "amqp://u:****@a/,amqp://u:****@b/" in out
    assert str(file) in out


def test_wrong_settings_are_a_line_each_and_exit_code_2(
    redrive: Redrive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDRIVE_BROKER__PREFETCH", "many")
    monkeypatch.setenv("REDRIVE_BORKER__URL", "x")
    code, out, err = redrive("config", "show", "--store-url", f"mysql://u:{SECRET}@h/db")
    assert (code, out) == (2, "")
    unknown, prefetch, store = err.splitlines()
    assert unknown == (
        "redrive: unknown setting 'REDRIVE_BORKER__URL' in the environment;"
        " did you mean 'REDRIVE_BROKER__URL'?"
    )
    assert prefetch == (
        "redrive: broker.prefetch (from REDRIVE_BROKER__PREFETCH):"
        " expected a whole number from 1 to 65535, got 'many'"
    )
    assert store.startswith("redrive: store.url (from --store-url): expected ")
    assert store.endswith("got 'mysql://u:****@h/db'")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (
            ["confg"],
            "redrive: No such command 'confg'. Did you mean 'config'? See 'redrive --help'",
        ),
        (["config"], "redrive: Missing command; see 'redrive config --help'"),
        (["config", "show", "--outptu"], "redrive: No such option: --outptu"),
        (
            ["--config", "x", "config", "show"],
            "redrive: No such option: --config; options stand behind the command; see",
        ),
        (
            ["config", "--output", "json", "show"],
            "redrive: No such option: --output; options stand behind the command; see",
        ),
        (
            ["config", "show", "--output", "xml"],
            "redrive: Invalid value for '--output': 'xml' is not one of",
        ),
        (["letters", "edit"], "redrive: name a letter, or give filters; one of them; see"),
        (["config", "show", "--config"], "redrive: Option '--config' requires an argument"),
        (["config", "show", f"amqp://u:{SECRET}@h"], "redrive: Got unexpected extra argument"),
    ],
)
def test_wrong_use_is_one_line_and_exit_code_2(
    redrive: Redrive, arguments: list[str], line: str
) -> None:
    code, out, err = redrive(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith(line)
    assert err.count("\n") == 1
    assert "--help'" in err
    assert SECRET not in err


def test_an_error_of_redrive_is_one_line_with_what_to_do_and_exit_code_1(
    redrive: Redrive, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = CannotConnect(f"no answer\nfrom amqp://u:{SECRET}@h/", remedy="start the broker")
    monkeypatch.setattr(Invocation, "load", raising(error))
    assert redrive("config", "show") == (
        1,
        "",
        "redrive: no answer from amqp://u:****@h/; start the broker\n",
    )


def test_an_unforeseen_error_is_one_line_too(
    redrive: Redrive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Invocation, "load", raising(KeyError(f"amqp://u:{SECRET}@h/")))
    code, out, err = redrive("config", "show")
    assert (code, out) == (1, "")
    assert err.startswith("redrive: unforeseen KeyError: 'amqp://u:****@h/'; please report it")
    assert err.count("\n") == 1


def test_an_interrupt_ends_quietly_with_130(
    redrive: Redrive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Invocation, "load", raising(KeyboardInterrupt()))
    assert redrive("config", "show") == (130, "", "")


def test_an_interrupt_before_any_command_runs_ends_quietly_too(
    redrive: Redrive, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted() -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr(app, "build", interrupted)
    assert redrive("--version") == (130, "", "")


# Buffered, as it usually is, the pipe is found closed only at the end.
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("arguments", [["--help"], ["config", "show", "--output", "json"]])
def test_a_reader_that_has_had_enough_is_no_error_to_talk_about(
    arguments: list[str], unbuffered: str
) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as closed:
        run = subprocess.run(
            [sys.executable, "-m", "redrive", *arguments],
            stdout=closed,
            stderr=subprocess.PIPE,
            check=False,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        )
    assert (run.returncode, run.stderr) == (1, "")


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("arguments", [["--help"], ["config", "show"], ["export", "grafana"]])
def test_output_for_which_there_is_no_room_is_one_line(
    arguments: list[str], unbuffered: str
) -> None:
    with Path("/dev/full").open("wb") as full:
        run = subprocess.run(
            [sys.executable, "-m", "redrive", *arguments],
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        )
    assert (run.returncode, run.stderr) == (
        1,
        "redrive: the output could not be written: No space left on device; make room for it\n",
    )


def test_outside_a_terminal_no_value_is_cut_or_wrapped(redrive: Redrive) -> None:
    url = ",".join(f"amqp://host-{number}.example.com/" for number in range(100))
    _, out, _ = redrive("config", "show", "--broker-url", url)
    assert url in out


def test_every_command_takes_the_common_options() -> None:
    for name in app.COMMANDS:
        commands = typer.main.get_group(import_module(f"redrive.cli.{name}").app).commands
        assert commands
        for command in commands.values():
            options = {option for parameter in command.params for option in parameter.opts}
            assert options >= {"--output", "--config", "--broker-url", "--store-url"}


def test_an_empty_list_of_roles_does_not_mean_all(redrive: Redrive) -> None:
    code, _, err = redrive("run", "--roles", "")
    assert code == 2
    assert "roles: expected some of retrier, collector, worker, janitor, server, got ''" in err


def test_the_queues_in_which_retries_wait_are_not_collected(
    redrive: Redrive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDRIVE_COLLECTOR__QUEUES", "payments.dlq,retry-queue")
    code, _, err = redrive("run")
    assert code == 2
    assert "collector.queues: expected dead letter queues, got 'retry-queue'" in err
    assert "messages for their next try wait there: take them off the list" in err


def test_all_queues_that_are_not_to_be_collected_are_named_and_what_waits_in_them(
    redrive: Redrive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDRIVE_COLLECTOR__QUEUES", "redrive-receipts")
    code, _, err = redrive("run")
    assert code == 2
    assert "expected dead letter queues, got 'redrive-receipts'" in err
    assert "receipts for the worker wait there" in err
    assert "next try" not in err
    monkeypatch.setenv("REDRIVE_COLLECTOR__QUEUES", "retry-queue,redrive-receipts,payments.dlq")
    _, _, err = redrive("run")
    assert "expected dead letter queues, got 'redrive-receipts', 'retry-queue'" in err
    assert "messages for their next try and receipts for the worker wait there" in err


@pytest.mark.parametrize("queue", ["redrive-after-125ms", "redrive-again-orders"])
def test_the_queues_in_which_messages_of_handlers_wait_are_not_collected(
    redrive: Redrive, monkeypatch: pytest.MonkeyPatch, queue: str
) -> None:
    monkeypatch.setenv("REDRIVE_COLLECTOR__QUEUES", queue)
    code, _, err = redrive("run")
    assert code == 2
    assert f"expected dead letter queues, got '{queue}'" in err
