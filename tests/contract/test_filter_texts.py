"""Texts of filters mean the same to both engines as to the rest of Redrive, whatever they hold."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import create_engine, insert, make_url, select
from sqlalchemy.engine import Connection

from redrive.domain.globs import is_glob, matching
from redrive.store.schema import redrive_tag
from redrive.store.selecting import matches

ALPHABET = "aB.*?[]%_\\^!-' é\n"
NAMES = st.text(alphabet=ALPHABET, max_size=5)


@pytest.fixture(params=["sqlite", "postgresql"], scope="module")
def connection(request: pytest.FixtureRequest) -> Iterator[Connection]:
    """A database with the table of tags, whose transaction is never committed."""
    if request.param == "sqlite":
        engine = create_engine("sqlite://")
    else:
        url = make_url(request.getfixturevalue("_database_with_tables"))
        engine = create_engine(url.set(drivername="postgresql+psycopg"))
    with engine.connect() as opened:
        redrive_tag.create(opened, checkfirst=True)
        yield opened
    engine.dispose()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150)
@given(pattern=NAMES, names=st.sets(NAMES, min_size=1, max_size=8))
def test_a_text_matches_what_the_same_glob_matches_elsewhere(
    connection: Connection, pattern: str, names: set[str]
) -> None:
    nested = connection.begin_nested()
    rows = [
        {"tag": name, "letter_id": f"00000000-0000-7000-8000-{number:012x}"}
        for number, name in enumerate(names)
    ]
    connection.execute(insert(redrive_tag), rows)
    sqlite = connection.dialect.name == "sqlite"
    query = select(redrive_tag.c.tag).where(matches(redrive_tag.c.tag, pattern, sqlite=sqlite))
    found = sorted(connection.execute(query).scalars())
    nested.rollback()
    expected = matching(pattern, names) if is_glob(pattern) else names & {pattern}
    assert found == sorted(expected)
