"""`redrive token`: what is done, and what is said where not all of it can be."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.services.commands import Redrive


def test_of_the_tokens_of_a_name_the_last_that_somebody_could_log_in_with_stays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    redrive = Redrive(tmp_path, capsys, f'[store]\nurl = "sqlite:///{tmp_path}/redrive.db"\n')
    for _ in range(2):
        assert redrive("token", "create", "ci", "--role", "viewer").code == 0
    second, first = redrive("token", "list", "--output", "json").document["items"]
    ran = redrive("token", "revoke", "ci", "--output", "json")
    assert ran.code == 1
    assert [each["id"] for each in ran.document["items"]] == [second["id"]]
    revoked, refused = ran.err.splitlines()
    assert revoked == f"redrive: revoked ci ({second['id']})"
    assert "token 'ci' is the last that is not revoked" in refused
    assert "redrive user set" in refused
    assert redrive("token", "create", "monitoring", "--role", "viewer").code == 0
    ran = redrive("token", "revoke", "ci")
    assert (ran.code, ran.err) == (0, f"redrive: revoked ci ({first['id']})\n")
