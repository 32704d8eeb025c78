"""A connection to the broker: handshake, channels, blocked and unblocked, orderly close.

`connect` tries the addresses in order and raises `CannotConnect` with every host's reason if none
lets us in. Once open, the connection ends in one of three ways: by `close`, by the broker with a
code and a text, or by loss. In the latter two `lost` tells why; everything unsettled is void.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Sequence
from typing import Final, TypeVar

from pamqp import base, commands

from redrive._version import __version__
from redrive.amqp import frames
from redrive.amqp.address import Address
from redrive.amqp.channel import Channel
from redrive.amqp.frames import request
from redrive.amqp.wire import Wire
from redrive.errors import (
    BrokerError,
    CannotConnect,
    ConnectionClosed,
    ConnectionLost,
    RedriveError,
    SettingsError,
)

_FRAME_MAX: Final = 131_072
_CHANNEL_MAX: Final = 2_047
_CLOSE_TIMEOUT: Final = 5.0
_CAPABILITIES: Final[dict[str, bool]] = {
    "authentication_failure_close": True,
    "basic.nack": True,
    "connection.blocked": True,
    "consumer_cancel_notify": True,
    "publisher_confirms": True,
}


_Reply = TypeVar("_Reply", bound=base.Frame)


async def connect(addresses: Sequence[Address], *, name: str) -> Connection:
    """Connect to the first address that answers and lets us in. `name` is what operators see."""
    failures: list[str] = []
    for address in addresses:
        connection = Connection(address, name)
        try:
            async with asyncio.timeout(address.timeout.total_seconds()):
                await connection.open()
        except TimeoutError:
            failures.append(f"{address}: no answer within {address.timeout.total_seconds():g} s")
        except ssl.SSLCertVerificationError as error:
            failures.append(f"{address}: certificate not trusted: {error.verify_message}")
        except (OSError, ssl.SSLError) as error:
            failures.append(f"{address}: {_plainly(error)}")
        except ValueError as error:  # a host or vhost name that cannot be one
            failures.append(f"{address}: {error}")
        except (BrokerError, SettingsError) as error:  # a TLS file may be gone at a reconnect
            failures.append(f"{address}: {_handshake_reason(error)}")
        else:
            return connection
        finally:
            if not connection.is_open:
                connection.abort()
    raise CannotConnect("cannot connect to the broker: " + "; ".join(failures))


def _plainly(error: OSError) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    if isinstance(error, socket.gaierror):
        return "no such host"
    return error.strerror or str(error)


def _handshake_reason(error: RedriveError) -> str:
    if isinstance(error, ConnectionClosed):
        return error.text
    return str(error)


class Connection:
    """One open connection. Made by `connect`."""

    def __init__(self, address: Address, name: str) -> None:
        self.address = address
        self.name = name
        self.is_open = False
        self.blocked: str | None = None  # the broker's reason while it blocks publishers
        self.server_properties: dict[str, object] = {}
        self._wire = Wire(self)
        self._unblocked = asyncio.Event()
        self._unblocked.set()
        self._lost: asyncio.Future[BrokerError] = asyncio.get_running_loop().create_future()
        self._handshake: asyncio.Queue[base.Frame | BrokerError] = asyncio.Queue()
        self._channel_max = _CHANNEL_MAX
        self._closing = False

    @property
    def user(self) -> str:
        return self.address.user

    @property
    def frame_max(self) -> int:
        return self._wire.frame_max

    @property
    def free_channels(self) -> int:
        """How many more channels can be opened."""
        return self._channel_max - len(self._wire.channels)

    # Opening

    async def open(self) -> None:
        address = self.address
        tls = address.tls
        await asyncio.get_running_loop().create_connection(
            lambda: self._wire,
            address.host,
            address.port,
            ssl=tls.context() if tls else None,
            server_hostname=(tls.server_name or address.host) if tls else None,
        )
        start = await self._next(commands.Connection.Start)
        self.server_properties = dict(start.server_properties or {})
        self._send(self._start_ok(str(start.mechanisms).split()))
        tune = await self._next(commands.Connection.Tune)
        self._send(self._tune_ok(tune))
        self._send(request(commands.Connection.Open, virtual_host=address.vhost))
        await self._next(commands.Connection.OpenOk)
        self.is_open = True

    def _start_ok(self, mechanisms: list[str]) -> base.Frame:
        mechanism = "EXTERNAL" if self.address.external else "PLAIN"
        if mechanism not in mechanisms:
            raise CannotConnect(f"the broker offers {', '.join(mechanisms)}, not {mechanism}")
        response = (
            "" if self.address.external else f"\0{self.address.user}\0{self.address.password}"
        )
        return request(
            commands.Connection.StartOk,
            client_properties={
                "product": "Redrive",
                "version": __version__,
                "platform": "Python",
                "connection_name": self.name,
                "capabilities": dict(_CAPABILITIES),
            },
            mechanism=mechanism,
            response=response,
            locale="en_US",
        )

    def _tune_ok(self, tune: commands.Connection.Tune) -> base.Frame:
        frame_max = min(tune.frame_max or _FRAME_MAX, _FRAME_MAX)
        self._channel_max = min(tune.channel_max or _CHANNEL_MAX, _CHANNEL_MAX)
        wanted = int(self.address.heartbeat.total_seconds())
        heartbeat = min(wanted, tune.heartbeat) if wanted and tune.heartbeat else wanted
        self._wire.frame_max = frame_max
        self._wire.start_heartbeats(heartbeat)
        return request(
            commands.Connection.TuneOk,
            channel_max=self._channel_max,
            frame_max=frame_max,
            heartbeat=heartbeat,
        )

    async def _next(self, expected: type[_Reply]) -> _Reply:
        """The next method of the handshake."""
        reply = await self._handshake.get()
        if isinstance(reply, BrokerError):
            raise reply
        if not isinstance(reply, expected):
            raise CannotConnect(f"the peer answered the handshake with {reply.name}")
        return reply

    def _send(self, method: base.Frame) -> None:
        self._wire.write(frames.encode_method(method, 0))

    # Use

    async def channel(self, *, patiently: bool = False) -> Channel:
        """Open a channel on the lowest free number. `patiently`: see `Channel.call`."""
        if self._wire.error is not None:
            raise self._wire.error
        channels = self._wire.channels
        number = next((n for n in range(1, self._channel_max + 1) if n not in channels), 0)
        if not number:
            raise BrokerError(f"all {self._channel_max} channels of the connection are in use")
        channel = Channel(self, self._wire, number)
        channels[number] = channel
        await channel.open(patiently=patiently)
        return channel

    async def unblocked(self) -> None:
        """Wait while the broker blocks publishers (a memory or disk alarm)."""
        await self._unblocked.wait()
        if self._wire.error is not None:
            raise self._wire.error

    async def lost(self) -> BrokerError:
        """Wait until the connection has ended; why."""
        return await asyncio.shield(self._lost)

    async def close(self) -> None:
        """Close in good order: what was written goes out first. Safe to call twice."""
        if self._wire.error is None and not self._closing:
            self._closing = True
            self._wire.call_began()  # the broker's answer may lie behind deliveries
            self._send(
                request(
                    commands.Connection.Close,
                    reply_code=200,
                    reply_text="bye",
                    class_id=0,
                    method_id=0,
                )
            )
        try:
            async with asyncio.timeout(_CLOSE_TIMEOUT):
                await self.lost()
                await self._wire.disconnected.wait()  # TLS takes a moment more
        except TimeoutError:
            self.abort()

    def abort(self) -> None:
        """End the connection at once, without a word to the broker."""
        self._wire.fail(ConnectionLost("the connection was given up"))

    # The wire's side

    def on_method(self, index: int, payload: bytes) -> None:
        if index == frames.CONNECTION_CLOSE:
            code, text = frames.decode_close(payload)
            self._send(request(commands.Connection.CloseOk))
            self._wire.end(ConnectionClosed(code, text))
        elif index == commands.Connection.CloseOk.index:
            self._wire.end(ConnectionLost("the connection was closed by its owner"))
        elif index == commands.Connection.Blocked.index:
            self.blocked = frames.read_shortstr(payload, 4)[0]
            self._unblocked.clear()
        elif index == commands.Connection.Unblocked.index:
            self.blocked = None
            self._unblocked.set()
        elif not self.is_open:
            self._handshake.put_nowait(frames.decode_method(payload))

    def on_lost(self, error: BrokerError) -> None:
        self.is_open = False
        self._unblocked.set()
        self._handshake.put_nowait(error)
        if not self._lost.done():
            self._lost.set_result(error)
