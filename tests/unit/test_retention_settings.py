"""Where cold storage is: never in the folder that a service happens to start in."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from redrive.errors import SettingsError
from redrive.settings import load
from redrive.settings.layers import Source


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A settings file in a folder of its own; the process is in another one."""
    (tmp_path / "etc").mkdir()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    return tmp_path / "etc" / "redrive.toml"


def cold_storage(file: Path, text: str, **environ: str) -> Path | None:
    file.write_text(text)
    settings = load(environ={"XDG_STATE_HOME": "/state", **environ}, config=file).settings
    return settings.retention.cold_storage


def test_the_periods_are_those_of_the_contract(file: Path) -> None:
    file.touch()
    retention = load(environ={"HOME": "/home/me"}, config=file).settings.retention
    days = (retention.resolved, retention.failed, retention.archived)
    assert days == (timedelta(days=30), timedelta(days=90), timedelta(days=365))


def test_by_default_it_is_beside_the_sqlite_store(file: Path) -> None:
    assert cold_storage(file, "") == Path("/state/redrive/archive")
    text = '[store]\nurl = "sqlite:////data/my/redrive.db?mode=rw"'
    assert cold_storage(file, text) == Path("/data/my/archive")


def test_with_postgresql_it_is_in_the_users_state_folder(file: Path) -> None:
    text = '[store]\nurl = "postgresql://db/redrive"'
    assert cold_storage(file, text) == Path("/state/redrive/archive")


def test_a_user_without_a_home_has_none_with_postgresql(file: Path) -> None:
    file.write_text('[store]\nurl = "postgresql://db/redrive"')
    assert load(environ={}, config=file).settings.retention.cold_storage is None


def test_an_absolute_path_is_taken_as_it_is(file: Path) -> None:
    assert cold_storage(file, '[retention]\ncold_storage = "/cold"') == Path("/cold")
    assert cold_storage(file, "", REDRIVE_RETENTION__COLD_STORAGE="/cold") == Path("/cold")


def test_a_relative_path_in_a_file_is_relative_to_that_file(file: Path) -> None:
    text = '[retention]\ncold_storage = "archive/"'
    assert cold_storage(file, text) == file.parent / "archive"


def test_a_file_that_is_named_relatively_is_meant_from_here(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text('[retention]\ncold_storage = "archive"')
    monkeypatch.chdir(file.parent)
    loaded = load(environ={"HOME": "/home/me"}, config=Path(file.name))
    assert loaded.settings.retention.cold_storage == file.parent / "archive"
    assert loaded.sources["retention.cold_storage"] == Source("file", file.name)


@pytest.mark.parametrize("given", ["archive", "./archive", "~/archive"])
def test_a_relative_path_in_the_environment_is_refused(file: Path, given: str) -> None:
    with pytest.raises(SettingsError, match=r"expected the absolute path of a folder, or in a"):
        cold_storage(file, "", REDRIVE_RETENTION__COLD_STORAGE=given)


@pytest.mark.parametrize("written", ["''", "7", "[]"])
def test_what_is_no_path_is_refused(file: Path, written: str) -> None:
    with pytest.raises(SettingsError, match=r"retention.cold_storage \(from .*redrive.toml\)"):
        cold_storage(file, f"[retention]\ncold_storage = {written}")


@pytest.mark.parametrize("period", ["0s", "36501d", "30", "soon"])
def test_a_period_that_could_not_be_meant_is_refused(file: Path, period: str) -> None:
    with pytest.raises(SettingsError, match="expected a duration from 1s to 36500d"):
        cold_storage(file, f'[retention]\nresolved = "{period}"')
