"""The management API's answers, as far as no broker gives them on demand."""

from __future__ import annotations

import http.client
import io
import urllib.error
import urllib.request
from email.message import Message
from typing import Any

import pytest

from redrive.broker.management import Management
from redrive.errors import ManagementError


class CutShort(io.BytesIO):
    """An answer whose connection ends in the middle."""

    def read(self, *_: Any) -> bytes:
        raise http.client.IncompleteRead(b'{"err')


async def test_a_refusal_that_is_cut_short_is_one_line_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(_self: object, request: urllib.request.Request, **_: object) -> None:
        raise urllib.error.HTTPError(
            request.full_url, 503, "Service Unavailable", Message(), CutShort()
        )

    monkeypatch.setattr(urllib.request.OpenerDirector, "open", refuse)
    management = Management("http://127.0.0.1:15672", "guest", "guest", "/")
    with pytest.raises(ManagementError, match="refused GET overview: 503 Service Unavailable"):
        await management.overview()
