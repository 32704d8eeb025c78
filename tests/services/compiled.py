"""SQL is compiled once a run, not once for the engine of each test.

An engine keeps what it has compiled for its own dialect only, and a test has an engine of its own:
compiling took a third of the time that tests of the store spent in Python. All engines of a run
are made by the same code, so a statement is the same text for each dialect of one kind.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, Engine, event


class _ByKindOfDialect(dict[Any, Any]):
    """Compiled statements, by a key that begins with the dialect; of that, only its kind counts."""

    def get(self, key: tuple[Any, ...], default: Any = None) -> Any:
        return super().get((type(key[0]), *key[1:]), default)

    def __setitem__(self, key: tuple[Any, ...], compiled: Any) -> None:
        super().__setitem__((type(key[0]), *key[1:]), compiled)


@contextmanager
def compiled_once() -> Iterator[None]:
    """Let every engine find what another one has compiled."""
    kept = _ByKindOfDialect()

    def share(connection: Connection) -> None:
        connection.execution_options(compiled_cache=kept)

    event.listen(Engine, "engine_connect", share)
    try:
        yield
    finally:
        event.remove(Engine, "engine_connect", share)
