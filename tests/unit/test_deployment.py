"""deploy/ is made for this Redrive: every setting, command, path and port in it is the program's.

There is no container engine here, so the Dockerfile and the compose file are linted, parsed, and
compared with what the program itself says. The unit is checked by systemd's own tools.
"""

from __future__ import annotations

import configparser
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from redrive.cli import main
from redrive.domain.access import LEAST_PASSWORD
from redrive.roles import ROLES
from redrive.server.app import Application
from redrive.settings import Settings, load
from redrive.settings.keys import VARIABLES
from redrive.settings.layers import SYSTEM_FILE
from scripts.commands_page import all_commands

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
HADOLINT = Path(sys.executable).parent / "hadolint"
STATE = "/var/lib/redrive"


def is_understood(*words: str) -> bool:
    """Whether the command line takes these words: the command, its options and their values."""
    commands = all_commands()
    for length in (2, 1):
        command = commands.get(" ".join(("redrive", *words[:length])))
        if command is not None:
            command.make_context(" ".join(words[:length]), list(words[length:]))
            return True
    return False


def roles_in(words: list[str]) -> set[str]:
    """The roles that a `run` starts."""
    if "--roles" not in words:
        return set(ROLES)
    return set(words[words.index("--roles") + 1].split(","))


def defaults(environ: dict[str, str]) -> Settings:
    return load(environ=environ, config=Path("/dev/null")).settings


# The image


class Stage:
    """The instructions of one FROM, in order."""

    def __init__(self, image: str) -> None:
        self.image = image
        self.instructions: list[tuple[str, str]] = []

    def all(self, name: str) -> list[str]:
        return [words for each, words in self.instructions if each == name]

    def one(self, name: str) -> str:
        (words,) = self.all(name)
        return words

    @property
    def environment(self) -> dict[str, str]:
        words = shlex.split(" ".join(self.all("ENV")))
        return dict(word.split("=", 1) for word in words)


def dockerfile() -> list[Stage]:
    text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    whole = re.sub(r"\\\n\s*", " ", re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE))
    stages: list[Stage] = []
    for line in filter(None, map(str.strip, whole.splitlines())):
        name, _, words = line.partition(" ")
        if name == "FROM":
            stages.append(Stage(words))
        elif stages:
            stages[-1].instructions.append((name, words.strip()))
    return stages


def test_the_dockerfile_has_no_complaint_of_the_linter() -> None:
    ran = subprocess.run(
        [HADOLINT, "--failure-threshold", "style", DEPLOY / "Dockerfile"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stdout) == (0, "")


def test_what_the_dockerfile_copies_is_there_and_not_ignored() -> None:
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").split("\n")
    let_in = {line[1:] for line in ignored if line.startswith("!")}
    copied = set()
    for stage in dockerfile():
        for words in stage.all("COPY"):
            if not words.startswith("--from="):
                copied |= set(words.split()[:-1])
    assert copied
    for path in copied:
        assert (ROOT / path).exists(), path
        assert path.strip("/").split("/")[0] in let_in, path
    assert {path.strip("/").split("/")[0] for path in copied} == let_in


def test_the_console_is_taken_from_where_it_is_built_to_where_it_is_served_from() -> None:
    console, package, _ = dockerfile()
    configuration = (ROOT / "console" / "vite.config.ts").read_text(encoding="utf-8")
    (out,) = re.findall(r'outDir: "([^"]+)"', configuration)
    built = (Path(console.one("WORKDIR")) / out).resolve()
    (copied,) = [words for words in package.all("COPY") if words.startswith("--from=console")]
    source, target = copied.split()[1:]
    assert Path(source) == built
    assert Path(target) == built.relative_to("/src")


def test_the_image_runs_as_nobody_with_a_health_check_and_one_place_to_write() -> None:
    image = dockerfile()[-1]
    environment = image.environment
    assert int(image.one("USER")) > 1000
    assert image.one("VOLUME") == STATE
    assert environment["TMPDIR"] == STATE, "a read-only root has no other room for them"
    settings = defaults(environment)
    assert settings.store.url.reveal() == f"sqlite:///{STATE}/redrive.db"
    assert str(settings.retention.cold_storage).startswith(STATE)
    assert {name for name in environment if name.startswith("REDRIVE_")} <= set(VARIABLES)
    assert int(image.one("EXPOSE")) == settings.server.port
    asked = re.search(r"http://127\.0\.0\.1:(\d+)(/\w+)", image.one("HEALTHCHECK"))
    assert asked is not None
    assert int(asked[1]) == settings.server.port
    assert asked[2] in Application(loopback=True).api.openapi()["paths"]
    (entry,) = json.loads(image.one("ENTRYPOINT"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert entry in project["scripts"]
    assert is_understood(*json.loads(image.one("CMD")))
    assert environment["PATH"].startswith("/opt/redrive/bin:")


def test_no_image_is_named_with_a_host_or_left_to_chance() -> None:
    text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    arguments = dict(re.findall(r"^ARG (\w+)=(\S+)$", text, re.MULTILINE))
    images = [stage.image.split()[0] for stage in dockerfile()]
    images = [re.sub(r"\$\{(\w+)\}", lambda found: arguments[found[1]], each) for each in images]
    images += [each["image"] for each in services().values() if each["image"] != "redrive"]
    for image in images:
        assert re.fullmatch(r"[a-z]+:[a-z0-9.-]+", image), image
        assert not image.endswith(":latest")


def test_the_image_has_the_locked_packages_and_the_tests_have_the_same() -> None:
    locked = {
        name: dict(
            re.findall(
                r"^([a-z0-9.-]+)(?:\[[a-z,]+\])?==(\S+)",
                (ROOT / "requirements" / f"{name}.txt").read_text(encoding="utf-8"),
                re.MULTILINE,
            )
        )
        for name in ("dev", "run", "build")
    }
    assert len(locked["run"]) > 20
    for name in ("run", "build"):
        assert locked[name].items() <= locked["dev"].items()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for needed in project["dependencies"]:
        assert re.split(r"[\[>; ]", needed)[0] in locked["run"]
    assert not {"pytest", "hypothesis", "mypy"} & set(locked["run"])


# The compose file


def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
    return found


def services() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = compose()["services"]
    return found


def ours() -> dict[str, dict[str, Any]]:
    return {name: each for name, each in services().items() if each["image"] == "redrive"}


def asked_for() -> set[str]:
    """The variables that whoever starts it must set."""
    text = (DEPLOY / "compose.yaml").read_text(encoding="utf-8")
    return set(re.findall(r"\$\{(\w+)", text))


def test_every_setting_of_the_compose_file_is_one_and_right() -> None:
    named = set()
    for name, service in ours().items():
        written = service["environment"]
        filled = {key: re.sub(r"\$\{\w+[^}]*\}", "s3cret", text) for key, text in written.items()}
        named |= {key for key in filled if key.startswith("REDRIVE_")}
        settings = defaults({**dockerfile()[-1].environment, **filled})
        if not written:
            continue
        assert settings.store.url.reveal().startswith("postgresql://redrive:s3cret@store"), name
        assert str(settings.retention.cold_storage).startswith(STATE)
    assert named <= set(VARIABLES)
    assert len(named) > 4


def test_every_command_of_the_compose_file_is_one() -> None:
    for name, service in ours().items():
        if "command" in service:
            assert is_understood(*service["command"]), name
    admin = ours()["admin"]["entrypoint"][-1]
    commands = re.findall(r"\bredrive ([^|\n]+)", admin)
    assert len(commands) == 2
    assert all(is_understood(*shlex.split(command)) for command in commands)
    (password,) = re.findall(r"printenv (\w+)", admin)
    assert password in ours()["admin"]["environment"]
    gateway = ours()["gateway"]["entrypoint"]
    assert gateway[:2] == ["python", "-m"]
    shown = subprocess.run(
        [sys.executable, "-m", gateway[2], "--help"], capture_output=True, text=True, check=True
    )
    assert gateway[3] in shown.stdout
    for option in ("--host", "--port"):
        assert option in shown.stdout


def test_the_admin_of_the_compose_file_is_made_once_and_keeps_the_password(tmp_path: Path) -> None:
    environment = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "REDRIVE_STORE__URL": f"sqlite:///{tmp_path}/redrive.db",
    }
    said = []
    for password in ("the first one", "another one"):
        ran = subprocess.run(
            ours()["admin"]["entrypoint"],
            env={**environment, "ADMIN_PASSWORD": password},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr
        said.append(ran.stdout)
    assert said == ["added admin: admin\n", ""]


def all_awaited_by(name: str) -> set[str]:
    """The services that are there before this one, directly or by others."""
    direct = set(services()[name].get("depends_on", {}))
    return direct.union(*map(all_awaited_by, direct))


def test_one_service_of_the_compose_file_builds_the_image_and_the_others_wait_for_it() -> None:
    (builder,) = [name for name, each in services().items() if "build" in each]
    assert builder in ours()
    for name, service in ours().items():
        assert service["pull_policy"] == "never", name
        assert name == builder or builder in all_awaited_by(name), name


def test_what_ends_by_itself_in_the_compose_file_is_tried_again_and_not_for_ever() -> None:
    ends = {
        other
        for service in services().values()
        for other, how in service.get("depends_on", {}).items()
        if how["condition"] == "service_completed_successfully"
    }
    assert ends == {"upgrade", "admin"}
    for name, service in services().items():
        expected = r"on-failure:\d+" if name in ends else "unless-stopped"
        assert re.fullmatch(expected, service["restart"]), name


def test_what_the_services_of_the_compose_file_name_is_there() -> None:
    names, volumes = services(), compose()["volumes"]
    for service in names.values():
        assert set(service.get("depends_on", {})) <= set(names)
        for mount in service.get("volumes", []):
            assert mount.split(":")[0] in volumes
    (build,) = [service["build"] for service in names.values() if "build" in service]
    assert (DEPLOY / build["context"]).resolve() == ROOT
    assert (ROOT / build["dockerfile"]).exists()
    port = defaults({"HOME": "/nowhere"}).server.port
    assert names["redrive"]["ports"] == [f"127.0.0.1:{port}:{port}"]
    payers = " ".join(names["payers"]["entrypoint"])
    assert "http://gateway:8080/transactions" in payers


def has_health_check(service: dict[str, Any]) -> bool:
    """Whether it is ever healthy: by a check of the file, or, in our image only, by the image's."""
    own = service.get("healthcheck")
    if own is not None:
        return not own.get("disable") and own.get("test", ["NONE"])[0] in ("CMD", "CMD-SHELL")
    return service["image"] == "redrive" and bool(dockerfile()[-1].all("HEALTHCHECK"))


def test_what_is_waited_for_until_it_is_healthy_has_a_health_check() -> None:
    awaited = {
        other
        for service in services().values()
        for other, how in service.get("depends_on", {}).items()
        if how["condition"] == "service_healthy"
    }
    assert awaited == {"broker", "store", "redrive"}
    assert {name for name in awaited if not has_health_check(services()[name])} == set()


def test_every_redrive_of_the_compose_file_is_read_only_and_without_privileges() -> None:
    assert len(ours()) > 3
    for name, service in ours().items():
        assert service["read_only"] is True, name
        assert "tmpfs" not in service, "temporary files are where the image has room"
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        runs = service.get("command", [""])[0] == "run"
        answers = runs and "server" in roles_in(service["command"])
        disabled = service.get("healthcheck") == {"disable": True}
        assert disabled is not answers, name
        if runs:
            assert service["stop_grace_period"] == "15s", "it drains within ten seconds"
    for name in ("broker", "store"):
        assert services()[name]["healthcheck"]["test"][0] == "CMD"
    asked = services()["store"]["healthcheck"]["test"]
    assert asked[asked.index("--host") + 1] == "127.0.0.1", "the server that fills it has no port"


def test_the_passwords_that_the_compose_file_wants_are_in_the_example_and_empty() -> None:
    lines = (DEPLOY / "example.env").read_text(encoding="utf-8").splitlines()
    names = {line.partition("=")[0]: line.partition("=")[2] for line in lines if "=" in line}
    assert set(names) == asked_for()
    assert set(names.values()) == {""}
    assert LEAST_PASSWORD == 8, "the example says so"
    ignored = (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()
    assert ".env" in ignored


# The unit


def unit() -> configparser.RawConfigParser:
    parser = configparser.RawConfigParser(strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(DEPLOY / "redrive.service", encoding="utf-8")
    return parser


def test_the_unit_starts_the_real_command_with_the_real_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    service = unit()["Service"]
    program, *words = shlex.split(service["ExecStart"])
    assert Path(program).name == "redrive"
    assert is_understood(*words)
    assert words[words.index("--config") + 1] == str(SYSTEM_FILE)
    environment = dict([service["Environment"].split("=", 1)])
    assert Path(environment["XDG_STATE_HOME"]) / service["StateDirectory"] == Path(STATE)
    assert defaults(environment).store.url.reveal() == f"sqlite:///{STATE}/redrive.db"
    assert Path("/etc", service["ConfigurationDirectory"]) == SYSTEM_FILE.parent
    assert Path(service["EnvironmentFile"].removeprefix("-")).parent == SYSTEM_FILE.parent
    (user,) = re.findall(
        r"^u (\w+) - \"[^\"]+\" (\S+)$", (DEPLOY / "redrive.sysusers").read_text(), re.MULTILINE
    )
    assert user == (service["User"], STATE)
    # What it must not be started again for is what wrong settings end with.
    wrong = tmp_path / "redrive.toml"
    wrong.write_text("[broker]\nprefetch = 0\n")
    with pytest.raises(SystemExit) as ended:
        main(["run", "--config", str(wrong)])
    assert ended.value.code == int(service["RestartPreventExitStatus"])
    assert "broker.prefetch" in capsys.readouterr().err


def test_the_unit_waits_for_ready_and_for_the_drain() -> None:
    service = unit()["Service"]
    assert (service["Type"], service["TimeoutStartSec"]) == ("notify", "infinity")
    assert int(service["TimeoutStopSec"].removesuffix("s")) > 10
    assert service["WatchdogSec"] == "60s"


def test_systemd_has_no_complaint_about_the_unit_and_calls_it_safe(tmp_path: Path) -> None:
    text = (DEPLOY / "redrive.service").read_text(encoding="utf-8")
    # The same with a program that is there on this machine.
    file = tmp_path / "redrive.service"
    file.write_text(text.replace("/opt/redrive/bin/redrive", "/bin/true"))
    for words in (
        ("verify", "--man=no"),
        ("security", "--offline=true", "--no-pager", "--threshold=15"),
    ):
        ran = subprocess.run(
            ["systemd-analyze", *words, file], capture_output=True, text=True, check=False
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        assert ran.stderr == "", ran.stderr
