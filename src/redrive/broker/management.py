"""A small client of RabbitMQ's management API: what topology, enroll and doctor ask of it.

Guarantees: names and vhosts are percent-encoded, no request takes longer than `timeout`, proxies
of the environment are not used, and whatever goes wrong is a ManagementError of one line that says
what to do. A thing that does not exist is an answer (None), not an error. No message has a secret.

The HTTP itself is the standard library's, in a thread: these calls are few and none is urgent.
"""

from __future__ import annotations

import asyncio
import base64
import http.client
import json
import urllib.error
import urllib.request
from datetime import timedelta
from typing import Any, Final
from urllib.parse import quote, unquote, urlencode, urlsplit

from redrive.domain.masking import mask_url
from redrive.errors import ManagementError

TIMEOUT: Final = timedelta(seconds=10)
_AT_ONCE: Final = 8  # requests; more would not be answered sooner

_REMEDIES: Final = {
    401: "check the user and password of [broker] management_url (by default the broker's), and"
    " give the user the tag 'management', or 'policymaker' to enroll queues",
    403: "give the user the tag 'management', or 'policymaker' to enroll queues",
}


class Management:
    """The management API of one broker, for one vhost.

    `user` and `password` are the broker's; those within the URL go before them.
    """

    def __init__(
        self,
        url: str,
        user: str,
        password: str,
        vhost: str,
        *,
        timeout: timedelta = TIMEOUT,
    ) -> None:
        parts = urlsplit(url)
        if parts.username is not None:
            user, password = unquote(parts.username), unquote(parts.password or "")
        host = parts.netloc.rpartition("@")[2]
        self.url = mask_url(f"{parts.scheme}://{host}{parts.path.rstrip('/')}")
        self.vhost = vhost
        self._base = f"{self.url}/api"
        credentials = base64.b64encode(f"{user}:{password}".encode()).decode()
        self._headers = {
            "Authorization": f"Basic {credentials}",
            "Content-Type": "application/json",
        }
        self._timeout = timeout
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        self._turn = asyncio.Semaphore(_AT_ONCE)

    # What there is

    async def version(self) -> str:
        """The broker's version; also the cheapest way to see whether the API answers."""
        return str((await self.overview())["rabbitmq_version"])

    async def overview(self) -> dict[str, Any]:
        """The broker at a glance: versions, and the types of exchanges that it knows."""
        found = _object(await self.call("GET", "overview"))
        if found is None or "rabbitmq_version" not in found:
            raise ManagementError(f"what answers at {self.url} is not RabbitMQ's management API")
        return found

    async def exchange(self, name: str) -> dict[str, Any] | None:
        return _object(await self._find("exchanges", self.vhost, name))

    async def queue(self, name: str) -> dict[str, Any] | None:
        return _object(await self._find("queues", self.vhost, name))

    async def queues(self, *columns: str, **parameters: int) -> list[dict[str, Any]]:
        """Every queue of the vhost, with these columns of each.

        Always with columns: without, RabbitMQ 4 leaves out the policy in force. `parameters` such
        as `lengths_age` say over which time statistics are made.
        """
        query = urlencode({"columns": ",".join(columns), **parameters}, safe=",")
        return await self._list(f"queues/{_quoted(self.vhost)}?{query}")

    async def exchanges(self) -> list[dict[str, Any]]:
        """Every exchange of the vhost."""
        columns = "name,type,durable,auto_delete,internal,arguments"
        return await self._list(f"exchanges/{_quoted(self.vhost)}?columns={columns}")

    async def bindings(self) -> list[dict[str, Any]]:
        """Every binding of the vhost."""
        return await self._list(f"bindings/{_quoted(self.vhost)}")

    async def channels(self) -> list[dict[str, Any]]:
        """The channels of the vhost that the user may see."""
        columns = "name,connection_details.name,global_prefetch_count"
        return await self._list(f"vhosts/{_quoted(self.vhost)}/channels?columns={columns}")

    async def bindings_of(self, queue: str) -> list[dict[str, Any]]:
        """What a queue is bound to; empty if there is no such queue."""
        return await self._find("queues", self.vhost, queue, "bindings") or []

    async def bindings_from(self, exchange: str) -> list[dict[str, Any]]:
        """What is bound to an exchange; empty if there is no such exchange."""
        found = await self._find("exchanges", self.vhost, exchange, "bindings", "source")
        return found or []

    # Policies

    async def policy(self, name: str) -> dict[str, Any] | None:
        return _object(await self._find("policies", self.vhost, name))

    async def policies(self) -> list[dict[str, Any]]:
        return await self._list(f"policies/{_quoted(self.vhost)}")

    async def operator_policies(self) -> list[dict[str, Any]]:
        return await self._list(f"operator-policies/{_quoted(self.vhost)}")

    async def set_policy(self, name: str, policy: dict[str, Any]) -> None:
        await self.call("PUT", _path("policies", self.vhost, name), policy)

    async def delete_policy(self, name: str) -> bool:
        """Whether there was one."""
        try:
            await self.call("DELETE", _path("policies", self.vhost, name))
        except ManagementError as error:
            if error.status == 404:
                return False
            raise
        return True

    # Who may see it differs by version: up to 3.12 or so only administrators.

    async def feature_flags(self) -> list[dict[str, Any]]:
        return await self._list("feature-flags")

    async def permissions(self, user: str) -> dict[str, Any] | None:
        """What a user may do in the vhost; only administrators may ask."""
        return _object(await self._find("permissions", self.vhost, user))

    # Requests

    async def call(self, method: str, path: str, body: object = None) -> Any:
        """One request; `path` begins after `/api/`. The parsed answer, None if it is empty."""
        async with self._turn:
            return await asyncio.to_thread(self._request, method, path, body)

    async def _find(self, *path: str) -> Any:
        try:
            return await self.call("GET", _path(*path))
        except ManagementError as error:
            if error.status == 404:
                return None
            raise

    async def _list(self, path: str) -> list[dict[str, Any]]:
        answer = await self.call("GET", path)
        if not isinstance(answer, list):
            raise ManagementError(f"the management API at {self.url} answered with no list")
        return answer

    def _request(self, method: str, path: str, body: object) -> Any:
        request = urllib.request.Request(  # noqa: S310 - the settings take http and https only
            f"{self._base}/{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers=self._headers,
        )
        try:
            with self._opener.open(request, timeout=self._timeout.total_seconds()) as answer:
                text = answer.read()
        except urllib.error.HTTPError as error:
            with error:
                raise self._refusal(method, path, error) from None
        except (OSError, http.client.HTTPException) as error:
            raise ManagementError(
                f"the management API at {self.url} does not answer: {_plainly(error)}"
            ) from error
        try:
            return json.loads(text) if text else None
        except ValueError:
            raise ManagementError(
                f"what answers at {self.url} is not RabbitMQ's management API"
            ) from None

    def _refusal(self, method: str, path: str, error: urllib.error.HTTPError) -> ManagementError:
        try:
            answer = json.loads(error.read())
            reason = str(answer.get("reason") or answer.get("error") or error.reason)
        except (ValueError, AttributeError, OSError, http.client.HTTPException):
            reason = str(error.reason)
        return ManagementError(
            f"the management API refused {method} {unquote(path)}: {error.code} {reason}",
            remedy=_REMEDIES.get(error.code, ""),
            status=error.code,
        )


def _object(answer: Any) -> dict[str, Any] | None:
    return answer if isinstance(answer, dict) else None


def _path(*parts: str) -> str:
    return "/".join(_quoted(part) for part in parts)


def _quoted(part: str) -> str:
    return quote(part, safe="")


def _plainly(error: Exception) -> str:
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(cause, TimeoutError):
        return "no answer in time"
    if isinstance(cause, ConnectionRefusedError):
        return "connection refused"
    if isinstance(cause, OSError) and cause.strerror:
        return cause.strerror
    return str(cause) or type(cause).__name__
