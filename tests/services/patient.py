"""A broker that the doctor looks at, and a shell in which its advice is followed to the letter."""

from __future__ import annotations

import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from redrive.broker.private import PrivateNode
from tests.services.commands import Ran, Redrive
from tests.services.eventually import eventually
from tests.services.foreign import Foreign

Found = dict[str, Any]

# The broker that is looked at counts anew several times a second (see plugin.py), not every five
# seconds: what the doctor's lines sleep, so that the counts they read are new, is a third here.
SLEEPS = """exec /bin/sleep "$(awk "BEGIN{print $1 / 3}")"
"""


def folder_with_rabbitmqctl(node: PrivateNode, folder: Path) -> Path:
    """A `rabbitmqctl` that is the real one, with the private node's environment."""
    environment = [f"{name}={value}" for name, value in node._environment().items()]
    real = node.installation.command(
        [f"{node.installation.scripts}/rabbitmqctl", "-q", "-n", node.name]
    )
    words = " ".join(f"'{word}'" for word in ("env", "-i", *environment, *real))
    _script(folder / "rabbitmqctl", f'exec {words} "$@"')
    return folder


def _script(path: Path, line: str) -> None:
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)


@dataclass
class Patient:
    """A vhost, its doctor, and somebody who does what the doctor says."""

    foreign: Foreign
    redrive: Redrive
    folder: Path

    @property
    def version(self) -> tuple[int, int]:
        found = self.foreign.vhost.node.api("GET", "overview")["rabbitmq_version"]
        major, minor = found.split(".")[:2]
        return int(major), int(minor)

    def doctor(self, *arguments: str) -> Ran:
        return self.redrive("doctor", "--output", "json", *arguments)

    def findings(self, check: str, name: str | None = None, *arguments: str) -> list[Found]:
        """What the doctor says under a check, of one thing or of all."""
        return [
            found
            for found in self.doctor(*arguments).document["items"]
            if found["check"] == check and name in (None, found["object"]["name"])
        ]

    def diagnosed(self, check: str, name: str, *arguments: str) -> Found:
        """The one finding of this check about this thing, once the broker's statistics show it."""
        found = eventually(lambda: self.findings(check, name, *arguments))
        assert len(found) == 1
        return found[0]

    def is_cured(self, check: str, name: str, *arguments: str) -> None:
        """Wait until the doctor no longer says so."""
        eventually(
            lambda: not self.findings(check, name, *arguments),
            what=f"{check} of {name} gone",
        )

    def follow(self, found: Found) -> None:
        """Run the commands of a finding, in their order, as they are printed."""
        assert found["commands"], found
        for command in found["commands"]:
            program, *words = shlex.split(command)
            if program == "redrive":  # in this process, which is faster
                ran = self.redrive(*words)
                assert ran.code == 0, f"{command}\n{ran.out}{ran.err}"
            else:
                self.run(command)

    def cure(self, check: str, name: str, *arguments: str) -> Found:
        """Find it, do what the finding says, and see it gone."""
        found = self.diagnosed(check, name, *arguments)
        self.follow(found)
        self.is_cured(check, name, *arguments)
        return found

    def run(self, script: str) -> None:
        done = self.attempt(script)
        assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"

    def attempt(self, script: str) -> subprocess.CompletedProcess[str]:
        """Paste this into a shell, and see what comes of it."""
        return subprocess.run(
            ["sh"],
            input=script,
            env=self.environment(),
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    def environment(self) -> dict[str, str]:
        """A shell's, in which `redrive` and `rabbitmqctl` mean this broker."""
        node = self.foreign.vhost.node
        folder = folder_with_rabbitmqctl(node, self.folder)
        config = self.folder / "redrive.toml"
        config.write_text(self.redrive.settings)
        _script(folder / "sleep", SLEEPS)
        _script(folder / "redrive", f"exec {sys.executable} -m redrive \"$@\" --config '{config}'")
        return {
            "PATH": f"{folder}:/usr/bin:/bin",
            "TMPDIR": str(node.folder),
            "HOME": str(self.folder),
        }
