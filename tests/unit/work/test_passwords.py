"""What hashing costs, and when it is paid."""

from __future__ import annotations

import subprocess
import sys

import argon2
import pytest

from redrive.work import passwords
from redrive.work.passwords import Passwords


async def test_a_password_fits_its_own_hash_only() -> None:
    hashed = await Passwords().hash("s3cret")
    assert await Passwords().fits("s3cret", hashed)
    assert not await Passwords().fits("S3cret", hashed)


async def test_nobodys_password_is_held_against_a_hash_of_the_same_cost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []

    def fits(_: str, hashed: str) -> bool:
        asked.append(hashed)
        return True

    monkeypatch.setattr(passwords, "_verify", fits)
    assert not await Passwords().fits("s3cret", None)
    of_somebody = await Passwords().hash("s3cret")
    assert argon2.extract_parameters(asked[0]) == argon2.extract_parameters(of_somebody)
    # one that cannot be read would be refused at once; this one is computed and compared
    with pytest.raises(argon2.exceptions.VerifyMismatchError):
        argon2.PasswordHasher().verify(asked[0], "s3cret")


def test_whoever_imports_it_does_not_wait_for_a_hash() -> None:
    script = (
        "import argon2._password_hasher as it\n"
        "def refuse(*_, **__): raise SystemExit('hashed')\n"
        "it.hash_secret = refuse\n"
        "import redrive.work.passwords\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
