"""A quorum queue whose leader is there and does not answer, as under load or without a majority."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.services.plugin import Vhost


@contextmanager
def silent_leader(vhost: Vhost, queue: str) -> Iterator[None]:
    """Until the end of the block, whoever asks for its counts is told (0, 0)."""
    leader = (
        f'{{ok, Q}} = rabbit_amqqueue:lookup(rabbit_misc:r(<<"{vhost.name}">>, queue,'
        f' <<"{queue}">>)), Leader = amqqueue:get_pid(Q),'
    )
    vhost.node.ctl("eval", f"{leader} sys:suspend(Leader).")
    try:
        yield
    finally:
        vhost.node.ctl("eval", f"{leader} sys:resume(Leader).")
