"""The wheel: installed alone, in an environment without Node, it serves the console."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import httpx
import pytest

from redrive.broker.processes import GuardedProcess
from tests.services.eventually import eventually

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")


def run(*words: str | Path) -> None:
    environment = dict(os.environ)
    if CERTIFICATES.exists():
        environment.setdefault("SSL_CERT_FILE", str(CERTIFICATES))
    ended = subprocess.run(
        [str(word) for word in words],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    run(BIN / "hatchling", "build", "-t", "wheel", "-d", folder)
    (built,) = folder.glob("*.whl")
    return built


def test_the_wheel_carries_the_built_console_and_nothing_of_its_source(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert "redrive/server/console/index.html" in names
    assert any(re.fullmatch(r"redrive/server/console/assets/.+\.js", name) for name in names)
    assert not [name for name in names if name.endswith((".tsx", ".map")) or "node_modules" in name]


def test_installed_in_an_empty_environment_without_node_it_serves_the_console(
    wheel: Path, tmp_path: Path
) -> None:
    uv, empty = BIN / "uv", tmp_path / "empty"
    run(uv, "venv", "--quiet", "--python", sys.executable, empty)
    locked = ROOT / "requirements" / "dev.txt"
    python = empty / "bin" / "python"
    run(
        *(uv, "pip", "install", "--quiet", "--python", python, "--no-verify-hashes"),
        *("--constraint", locked, wheel),
    )
    environment = {"PATH": str(empty / "bin"), "HOME": str(tmp_path), "LANG": "C.UTF-8"}
    assert shutil.which("node", path=environment["PATH"]) is None
    settings = tmp_path / "redrive.toml"
    settings.write_text(
        '[broker]\nurl = "amqp://127.0.0.1:9/"\n[server]\nport = 0\n'
        f'[store]\nurl = "sqlite:///{tmp_path}/redrive.db"\n'
    )
    log = tmp_path / "log"
    process = GuardedProcess(
        [str(empty / "bin" / "redrive"), "run", "--roles", "server", "--config", str(settings)],
        env=environment,
        cwd=tmp_path,
        output=log,
    )
    try:
        address = eventually(lambda: _address(log), what="the server listens")
        assert address is not None
        page = httpx.get(address, trust_env=False, timeout=30)
        assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
        (script,) = re.findall(r'<script type="module"[^>]* src="([^"]+)"', page.text)
        loaded = httpx.get(address + script, trust_env=False, timeout=30)
        assert loaded.status_code == 200
        assert "immutable" in loaded.headers["cache-control"]
    finally:
        process.kill()


def _address(log: Path) -> str | None:
    for line in log.read_text().splitlines() if log.exists() else ():
        if '"server.listening"' in line:
            return str(json.loads(line)["address"])
    return None
