"""So many messages a second, evenly."""

from __future__ import annotations

import asyncio


class Rate:
    """Waits after what was published, so that no more than `per_second` go out."""

    def __init__(self, per_second: float) -> None:
        self._each = 1 / per_second
        self._due = asyncio.get_running_loop().time()

    async def __call__(self, published: int) -> None:
        if not published:
            return
        now = asyncio.get_running_loop().time()
        self._due = max(self._due, now - self._each) + published * self._each
        if self._due > now:
            await asyncio.sleep(self._due - now)
