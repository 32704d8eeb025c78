"""Tests that mount file systems do so for a user with sudo, too."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.services.mounting import grow, read_only, small_disk

_SUDO = '#!/bin/sh\necho "$@" >>"$0.asked"\n'


@pytest.fixture
def sudo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A `sudo` that only notes what it is asked by a user who is not root."""
    monkeypatch.setattr(os, "geteuid", lambda: 1234)
    monkeypatch.setattr(os, "getegid", lambda: 1235)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    program = tmp_path / "sudo"
    program.write_text(_SUDO)
    program.chmod(0o755)
    return program


def test_without_root_sudo_mounts_a_disk_that_the_user_may_write_to(
    sudo: Path, tmp_path: Path
) -> None:
    disk = tmp_path / "disk"
    with small_disk(disk, megabytes=3):
        grow(disk, megabytes=64)
    options = "size=3m,mode=0700,uid=1234,gid=1235"
    assert Path(f"{sudo}.asked").read_text().splitlines() == [
        f"--non-interactive -- mount -t tmpfs -o {options} tmpfs {disk}",
        f"--non-interactive -- mount -o remount,size=64m {disk}",
        f"--non-interactive -- umount --lazy {disk}",
    ]


def test_what_was_mounted_goes_also_if_the_test_fails(sudo: Path, tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), read_only(tmp_path):
        raise ZeroDivisionError
    asked = Path(f"{sudo}.asked").read_text().splitlines()
    assert asked[-1] == f"--non-interactive -- umount --lazy {tmp_path}"


def test_where_sudo_is_refused_the_test_fails_and_says_what_to_do(
    sudo: Path, tmp_path: Path
) -> None:
    sudo.write_text('#!/bin/sh\necho "sudo: a password is required" >&2\nexit 1\n')
    with (
        pytest.raises(AssertionError, match=r"a password is required; .*after 'sudo -v'"),
        small_disk(tmp_path / "disk", megabytes=3),
    ):
        pass


def test_where_there_is_no_sudo_the_test_says_so(
    sudo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sudo.unlink()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(AssertionError, match=r"'sudo'; tests mount"), read_only(tmp_path):
        pass
