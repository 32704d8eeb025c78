"""No part of a secret in what is said of settings, right or wrong, wherever it was put."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from redrive.cli import main
from redrive.errors import SettingsError
from redrive.settings import load
from tests.services.planting import Garden, sinks

Spoilt = Callable[[Garden], str]


def _of(url: str) -> Spoilt:
    """A URL with the planted secret for `{}` as it is written, and `{u}` percent-encoded."""

    def made(garden: Garden) -> str:
        secret = garden["broker"]
        return url.replace("{u}", secret.in_url).replace("{}", secret.value)

    return made


URLS = [
    "amqp://app:{u}@mq:5672/vhost",
    "amqp://app:{u}@mq:port/",
    "amqp://app:{u}@/",
    "amqp://app:{u}",
    "amqp//app:{u}@mq",
    "app:{u}@mq",
    "amqp://app:{}@mq/",
    "http://app:{u}@mq/",
    "amqp://app:{u}@mq/,amqp://app:{u}@mq2:port/",
    "amqp://mq/?password={u}",
    "postgresql://app:{u}@db:port/redrive",
    "postgresql://db/redrive?user=app&password={u}&no_such_option=1",
    "mysql://app:{u}@db/redrive",
    "sqlite://app:{u}@db/x",
    "host=db user=app password={u}",
]
KEYS = ["broker.url", "broker.management_url", "store.url", "policy_table.url", "server.public_url"]


def said_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit):
        main([*arguments])
    shown = capsys.readouterr()
    return shown.out + shown.err


@pytest.mark.parametrize("url", URLS)
@pytest.mark.parametrize("key", KEYS)
def test_a_url_with_a_password_is_shown_without_it_right_or_wrong_from_every_place(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    url: str,
    key: str,
) -> None:
    garden = Garden()
    written = _of(url)(garden)
    section, name = key.split(".")
    file = tmp_path / "redrive.toml"
    file.write_text(f"[{section}]\n{name} = {json.dumps(written)}\n")
    config = ("config", "show", "--config", str(file))
    shown = [said_of(capsys, *config), said_of(capsys, *config, "--output", "json")]
    file.write_text("")
    monkeypatch.setenv(f"REDRIVE_{section.upper()}__{name.upper()}", written)
    shown.append(said_of(capsys, *config))
    monkeypatch.undo()
    if key == "broker.url":
        monkeypatch.setenv("CLOUDAMQP_URL", written)
        shown.append(said_of(capsys, *config))
        monkeypatch.undo()
    if key in ("broker.url", "store.url"):
        shown.append(said_of(capsys, *config, f"--{key.replace('.', '-')}", written))
    assert [garden.found_in(each) for each in shown] == [[]] * len(shown)


def _with_sinks(old: str, new: str) -> Spoilt:
    def made(garden: Garden) -> str:
        right = sinks(garden, "127.0.0.1:1", "127.0.0.1:2")
        assert old in right
        return right.replace(old, new)

    return made


def _in_the_broker(line: str) -> Spoilt:
    return lambda garden: "[broker]\n" + line.replace("{}", garden["broker"].head)


FILES: dict[str, Spoilt] = {
    "all right": lambda garden: sinks(garden, "127.0.0.1:1", "127.0.0.1:2"),
    "a kind that does not fit": _with_sinks('"slack"', '"email"'),
    "no such kind": _with_sinks('"slack"', '"slak"'),
    "a scheme that is none": _with_sinks("smtp://", "smpt://"),
    "a password for http": _with_sinks("smtp://", "http://"),
    "a port that is none": _with_sinks("127.0.0.1:2", "127.0.0.1:two"),
    "white space": _with_sinks("/services/", "/ services/"),
    "a key that is none": _with_sinks("secret =", "sekret ="),
    "a secret that is a list": lambda garden: _with_sinks(
        f"secret = {json.dumps(garden['webhook secret'].value)}",
        f"secret = [{json.dumps(garden['webhook secret'].value)}]",
    )(garden),
    "no end of the text": _in_the_broker('url = "amqp://app:{}@mq/'),
    "no beginning of the text": _in_the_broker("url = amqp://app:{}@mq/"),
    "a key of its own": _in_the_broker('password = "{}"'),
    "a table": _in_the_broker('url = {password = "{}"}'),
    "a list": _in_the_broker('url = ["amqp://app:{}@mq/"]'),
    "another key's value": _in_the_broker('prefetch = "amqp://app:{}@mq/"'),
}


@pytest.mark.parametrize("spoil", FILES.values(), ids=FILES.keys())
def test_a_file_with_secrets_is_complained_of_without_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], spoil: Spoilt
) -> None:
    garden = Garden()
    file = tmp_path / "redrive.toml"
    file.write_text(spoil(garden))
    said = said_of(capsys, "config", "show", "--config", str(file))
    said += said_of(capsys, "config", "show", "--config", str(file), "--output", "json")
    assert garden.found_in(said) == []


@pytest.mark.parametrize(
    "text", ['[{"name": "hook", "url": "{}"', '[{"name": "hook", "url": "{}"}]', "{}", '["{}"]']
)
@pytest.mark.parametrize("variable", ["REDRIVE_ALERT_SINK", "REDRIVE_ALERT_SINK__SECRET"])
def test_sinks_in_the_environment_are_complained_of_without_their_secrets(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    text: str,
    variable: str,
) -> None:
    garden = Garden()
    monkeypatch.setenv(variable, text.replace("{}", garden["url"].head))
    (tmp_path / "redrive.toml").touch()
    said = said_of(capsys, "config", "show", "--config", str(tmp_path / "redrive.toml"))
    assert "redrive: " in said
    assert garden.found_in(said) == []


def test_what_was_loaded_gives_no_secret_away_by_being_printed(tmp_path: Path) -> None:
    garden = Garden()
    file = tmp_path / "redrive.toml"
    file.write_text(
        f'[broker]\nurl = "amqp://app:{garden["broker"].in_url}@mq/"\n'
        f'[store]\nurl = "postgresql://app:{garden["store"].in_url}@db/redrive"\n'
        + sinks(garden, "127.0.0.1:1", "127.0.0.1:2")
    )
    loaded = load(config=file, environ={})
    for text in (repr(loaded), str(loaded.settings), loaded.settings.model_dump_json()):
        assert garden.found_in(text) == []


def test_the_error_carries_no_secret_in_its_causes(tmp_path: Path) -> None:
    garden = Garden()
    file = tmp_path / "redrive.toml"
    file.write_text(sinks(garden, "127.0.0.1:1", "127.0.0.1:2").replace('"slack"', '"slak"'))
    with pytest.raises(SettingsError) as raised:
        load(config=file, environ={})
    assert raised.value.__context__ is None
    assert raised.value.__cause__ is None
