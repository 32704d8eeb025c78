"""Real Prometheus and Alertmanager, in temporary folders, on loopback ports of their own."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from redrive.broker.processes import GuardedProcess, free_ports, remove_at_exit, removed
from redrive.errors import CannotStart

_READY_WITHIN = 90.0
_ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8", "TZ": "UTC"}


class Service:
    """A server that is up, and its HTTP API."""

    def __init__(self, url: str) -> None:
        self.url = url

    def get(self, path: str, **parameters: str) -> Any:
        answer = httpx.get(f"{self.url}{path}", params=parameters, trust_env=False, timeout=30)
        answer.raise_for_status()
        return answer.json()


class Alertmanager(Service):
    def firing(self) -> set[str]:
        """The alerts that fire there now."""
        found = self.get("/api/v2/alerts", active="true")
        return {each["labels"]["alertname"] for each in found}

    def alert(self, name: str) -> dict[str, Any]:
        (found,) = (
            each for each in self.get("/api/v2/alerts") if each["labels"]["alertname"] == name
        )
        assert isinstance(found, dict)
        return found


class Prometheus(Service):
    def ask(self, query: str) -> list[dict[str, Any]]:
        """What a query is answered with; an error raises."""
        answer = self.get("/api/v1/query", query=query)
        assert answer["status"] == "success"
        result = answer["data"]["result"]
        if answer["data"]["resultType"] == "scalar":
            return [{"metric": {}, "value": result}]
        assert isinstance(result, list)
        return result

    def firing(self) -> set[str]:
        alerts = self.get("/api/v1/alerts")["data"]["alerts"]
        return {each["labels"]["alertname"] for each in alerts if each["state"] == "firing"}


@contextmanager
def alertmanager() -> Iterator[Alertmanager]:
    (port,) = free_ports(1)
    config = {
        "route": {"receiver": "nobody", "group_wait": "0s"},
        "receivers": [{"name": "nobody"}],
    }
    with _folder("alertmanager") as folder:
        (folder / "config.yml").write_text(json.dumps(config))  # JSON is YAML
        command = [
            _program("prometheus-alertmanager"),
            f"--config.file={folder / 'config.yml'}",
            f"--storage.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
            "--cluster.listen-address=",
        ]
        with _running(command, folder, f"http://127.0.0.1:{port}"):
            yield Alertmanager(f"http://127.0.0.1:{port}")


@contextmanager
def prometheus(target: str, rules: str, *, token: str, alerts_to: str) -> Iterator[Prometheus]:
    """One that scrapes `target` every second and judges rules as often."""
    (port,) = free_ports(1)
    host = {"targets": [target.removeprefix("http://")]}
    with _folder("prometheus") as folder:
        (folder / "rules.yml").write_text(rules)
        (folder / "token").write_text(token)
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(folder / "rules.yml")],
            "scrape_configs": [
                {
                    "job_name": "redrive",
                    "static_configs": [host],
                    "authorization": {"credentials_file": str(folder / "token")},
                }
            ],
            "alerting": {
                "alertmanagers": [
                    {"static_configs": [{"targets": [alerts_to.removeprefix("http://")]}]}
                ]
            },
        }
        (folder / "config.yml").write_text(json.dumps(config))
        command = [
            _program("prometheus"),
            f"--config.file={folder / 'config.yml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
        ]
        with _running(command, folder, f"http://127.0.0.1:{port}"):
            yield Prometheus(f"http://127.0.0.1:{port}")


def _program(name: str) -> str:
    found = shutil.which(name, path=_ENVIRONMENT["PATH"])
    if found is None:
        raise CannotStart(f"{name} is not installed", remedy=f"apt-get install {name}")
    return found


@contextmanager
def _folder(name: str) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix=f"redrive-{name}-"))
    remove_at_exit(folder)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        removed(folder)


@contextmanager
def _running(command: list[str], folder: Path, url: str) -> Iterator[None]:
    process = GuardedProcess(command, env=_ENVIRONMENT, cwd=folder, output=folder / "log")
    try:
        deadline = time.monotonic() + _READY_WITHIN
        while not _is_ready(url):
            if not process.alive or time.monotonic() > deadline:
                raise CannotStart((folder / "log").read_text(errors="replace")[-2000:])
            time.sleep(0.05)
        yield
    finally:
        process.kill()


def _is_ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/-/ready", trust_env=False, timeout=5).status_code == 200
    except httpx.HTTPError:
        return False
