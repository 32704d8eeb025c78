"""How a database would find what a store asks it for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import event, text

from redrive.store.store import Store

Asked = list[tuple[str, Any]]


@contextmanager
def statements(store: Store, beginning: str) -> Iterator[Asked]:
    """What is asked meanwhile that begins so, with the parameters."""
    asked: Asked = []

    def note(_: Any, __: Any, statement: str, parameters: Any, ___: Any, ____: bool) -> None:
        if statement.startswith(beginning):
            asked.append((statement, parameters))

    engine = store.database._engine.sync_engine
    event.listen(engine, "before_cursor_execute", note)
    try:
        yield asked
    finally:
        event.remove(engine, "before_cursor_execute", note)


async def reads_whole_tables(store: Store, asked: Asked) -> bool:
    """Whether one of these could only be answered by going through a whole table."""
    plans = await _plans(store, asked)
    return any(plan.startswith("SCAN redrive_") or "Seq Scan" in plan for plan in plans)


async def goes_by(store: Store, asked: Asked, index: str) -> bool:
    """Whether one of these would be answered by this index, on PostgreSQL by its statistics."""
    if not store.database.is_sqlite:
        async with store.database.writing() as connection:
            await connection.execute(text("ANALYZE"))
    return any(index in plan for plan in await _plans(store, asked))


async def _plans(store: Store, asked: Asked) -> list[str]:
    sqlite = store.database.is_sqlite
    plans: list[str] = []
    async with store.database.reading() as connection:
        if not sqlite:
            await connection.execute(text("SET LOCAL enable_seqscan = off"))
        for statement, parameters in asked:
            explain = f"EXPLAIN QUERY PLAN {statement}" if sqlite else f"EXPLAIN {statement}"
            rows = (await connection.exec_driver_sql(explain, parameters)).all()
            plans += [str(row[-1]) for row in rows]
    return plans
