"""The policies for a process that runs: always at hand, never older than a few seconds.

Guarantees: `book` costs nothing; no message waits for the database. `start` returns only when all
sources were read, and raises otherwise: a retrier that consumed without policies would take every
message for unconfigured. From then on a change is in `book` within 5 seconds. While a source cannot
be read, what it last said stays in force; each outage is logged once, and its end.

Events: `policies.loaded`, `policies.changed` (info); `policies.unreachable`, `policies.refused`
(warning); `policies.reachable` (info); `policies.refresh_failed` (error, a defect).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Final

import structlog

from redrive.domain.policy import PolicyBook, PolicyProblem, PolicyRow
from redrive.errors import RedriveError, SettingsError, StoreError, StoreUnreachable
from redrive.store.policies import PolicyTable
from redrive.store.policy_files import FilePolicies, PolicyFiles

EVERY: Final = timedelta(seconds=2)
_PATIENCE: Final = 10.0
"""Seconds after which a database that does not answer counts as unreachable."""

log = structlog.get_logger()


class PolicyWatch:
    """Start it, read `book` as often as you like, stop it. Both are safe to call twice."""

    def __init__(
        self,
        open_table: Callable[[], Awaitable[PolicyTable]],
        files: PolicyFiles,
        *,
        every: timedelta = EVERY,
    ) -> None:
        self._open_table = open_table
        self._files = files
        self._every = every.total_seconds()
        self._table: PolicyTable | None = None
        self._task: asyncio.Task[None] | None = None
        self._rows: list[PolicyRow] = []
        self._file = FilePolicies()
        self._book = PolicyBook()
        self._outages: set[str] = set()
        self._reported: set[PolicyProblem] = set()

    @property
    def book(self) -> PolicyBook:
        """The newest policies. Ask for it anew with every batch; a book never changes."""
        return self._book

    async def start(self) -> None:
        """Read everything once, then keep it fresh.

        Raises StoreError where the table, SettingsError where the properties file cannot be read;
        it may then be called again.
        """
        if self._task is not None:
            return
        try:
            async with asyncio.timeout(_PATIENCE):
                self._table = await self._open_table()
                self._rows = await self._table.read()
            self._file = await asyncio.to_thread(self._files.read)
        except TimeoutError as error:
            await self._close()
            raise StoreUnreachable("the policy table does not answer") from error
        except BaseException:
            await self._close()
            raise
        self._open_book("policies.loaded")
        self._task = asyncio.create_task(self._keep_fresh(self._table), name="policy-watch")

    async def stop(self) -> None:
        """End it; `book` stays as it is."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        await self._close()

    async def _close(self) -> None:
        table, self._table = self._table, None
        if table is not None:
            await table.close()

    async def _keep_fresh(self, table: PolicyTable) -> None:
        # Not for ever: a driver that is cancelled amid a query may answer with an error of its own.
        while self._task is not None:
            await asyncio.sleep(self._every)
            try:
                await self._refresh(table)
            except Exception:
                # A defect; but policies that silently stay old for ever would be worse.
                log.exception("policies.refresh_failed")

    async def _refresh(self, table: PolicyTable) -> None:
        rows, file = await self._read_rows(table), await self._read_files()
        # Building a book of thousands of rows takes a while; mostly nothing has changed.
        if rows != self._rows or file != self._file:
            self._rows, self._file = rows, file
            self._open_book("policies.changed")

    async def _read_rows(self, table: PolicyTable) -> list[PolicyRow]:
        try:
            async with asyncio.timeout(_PATIENCE):
                rows = await table.read()
        except TimeoutError:
            self._lost("table", StoreUnreachable("the policy table does not answer"))
            return self._rows
        except StoreError as error:
            self._lost("table", error)
            return self._rows
        self._found("table")
        return rows

    async def _read_files(self) -> FilePolicies:
        try:
            file = await asyncio.to_thread(self._files.read)
        except SettingsError as error:
            self._lost("properties", error)
            return self._file
        self._found("properties")
        return file

    def _open_book(self, event: str) -> None:
        self._book = PolicyBook(self._rows, self._file.policies, self._file.problems)
        log.info(event, policies=len(self._book))
        for problem in self._book.problems:
            if problem not in self._reported:
                log.warning(
                    "policies.refused",
                    source=problem.source,
                    place=problem.place,
                    name=problem.name,
                    reason=problem.reason,
                )
        # Only what is still wrong: one that is mended and broken again is news.
        self._reported = set(self._book.problems)

    def _lost(self, source: str, error: RedriveError) -> None:
        if source not in self._outages:
            self._outages.add(source)
            log.warning(
                "policies.unreachable",
                source=source,
                error=str(error),
                remedy=error.remedy,
                in_force="as last read",
            )

    def _found(self, source: str) -> None:
        if source in self._outages:
            self._outages.remove(source)
            log.info("policies.reachable", source=source)
