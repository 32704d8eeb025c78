"""Secrets that can be recognised wherever a part of one turns up, in whatever form.

A planted secret begins and ends with letters that nothing else has, and holds in between what URLs
have to escape. So half a secret is found as well as a whole one, and the same letters stand in its
percent-encoded and JSON form.
"""

from __future__ import annotations

import base64
import json
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote


@dataclass(frozen=True)
class Planted:
    """One secret."""

    name: str
    head: str = field(default_factory=lambda: f"head{secrets.token_hex(6)}")
    tail: str = field(default_factory=lambda: f"tail{secrets.token_hex(6)}")

    @property
    def value(self) -> str:
        return f"{self.head}@:/?#%&=[]+'{self.tail}"

    @property
    def in_url(self) -> str:
        return quote(self.value, safe="")

    @property
    def in_path(self) -> str:
        """As a secret that is the path of a URL, as Slack's is."""
        return f"services/{self.head}/{self.tail}"

    def forms(self) -> Iterator[bytes]:
        for part in (self.head, self.tail):
            yield part.encode()
            yield part.encode().hex().encode()
            yield from _within_base64(part.encode())


def _within_base64(part: bytes) -> Iterator[bytes]:
    """How it looks inside of something longer that was encoded, wherever it begins in that."""
    for shift in range(3):
        encoded = base64.b64encode(b"\0" * shift + part)
        yield encoded[4 if shift else 0 : -4]


@dataclass(frozen=True)
class Garden:
    """All secrets of a test."""

    planted: dict[str, Planted] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Planted:
        return self.planted.setdefault(name, Planted(name))

    def found_in(self, content: str | bytes, *, but: frozenset[str] = frozenset()) -> list[str]:
        """The names of the secrets of which something is there."""
        sought = content.encode("utf-8", "surrogateescape") if isinstance(content, str) else content
        return [
            name
            for name, each in self.planted.items()
            if name not in but and any(form in sought for form in each.forms())
        ]

    def found_in_files(self, folder: Path, *, but: frozenset[Path]) -> list[tuple[str, list[str]]]:
        """The same for every file below a folder, except those that people wrote."""
        files = [path for path in folder.rglob("*") if path.is_file() and path not in but]
        found = [(path.name, self.found_in(path.read_bytes())) for path in sorted(files)]
        return [(name, names) for name, names in found if names]


def sinks(garden: Garden, hook: str, nobody: str) -> str:
    """Settings of sinks with a secret in each place that has one. `hook` and `nobody` are
    `host:port`: one that answers, one that does not."""
    webhook = f"http://{hook}/{garden['webhook path'].in_path}?token={garden['webhook query'].head}"
    slack = f"http://{nobody}/{garden['slack path'].in_path}"
    mail = f"smtp://mailer:{garden['smtp password'].in_url}@{nobody}"
    return "\n".join(
        [
            '[[alert]]\nname = "Always"\ncondition = "dlq_backlog >= 0"',
            f'[[alert_sink]]\nname = "hook"\nkind = "webhook"\nurl = {json.dumps(webhook)}',
            f"secret = {json.dumps(garden['webhook secret'].value)}",
            f'[[alert_sink]]\nname = "chat"\nkind = "slack"\nurl = {json.dumps(slack)}',
            f'[[alert_sink]]\nname = "mail"\nkind = "email"\nurl = {json.dumps(mail)}',
            'sender = "redrive@example.com"\nto = ["ops@example.com"]\n',
        ]
    )
