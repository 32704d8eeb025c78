"""What is sent when a message is published again: what its publisher sent, made safe to send.

Byte for byte the publisher's entries, except:
- the broker's own headers go; the deaths in `x-death` move to `redrive-deaths` first, since a
  broker forgets them (4.x) or miscounts with them (3.x) after a republish;
- the delivery mode becomes persistent;
- what would close the channel (`user_id` of someone else), kill the copy (`expiration`) or multiply
  it (`CC`, `BCC`) is set aside in a `redrive-*` header;
- `redrive-redelivered` marks a copy that may be a second one.

What Redrive adds has at most 16 KiB: first the stack is cut, then old deaths, then the reason.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final

from redrive.amqp import fields, surgery
from redrive.amqp.delivery import Delivery
from redrive.amqp.fields import array_items, count_items, octets
from redrive.amqp.properties import Properties
from redrive.domain import headers
from redrive.errors import MalformedData, Unpublishable

_OURS: Final = frozenset(map(octets, headers.WRITTEN))
_TAKEN: Final = _OURS.union(map(octets, headers.BROKERS_OWN), (b"CC", b"BCC"))
_X_DEATH: Final = octets(headers.X_DEATH)
_DROPPED: Final = frozenset(map(octets, headers.BROKERS_OWN)) - {_X_DEATH}
_OPENER: Final = surgery.Opener(_TAKEN, _DROPPED)
_DEATHS: Final = octets(headers.DEATHS)
_REASON: Final = octets(headers.ERROR_REASON)
_STACK: Final = octets(headers.ERROR_STACK)
_REDELIVERED: Final = octets(headers.REDELIVERED)
_USER_ID: Final = octets(headers.USER_ID)
_EXPIRATION: Final = octets(headers.EXPIRATION)
_TRUE: Final = fields.boolean(True)
_SET_ASIDE: Final = {b"CC": octets(headers.CC), b"BCC": octets(headers.BCC)}
_RARE: Final = surgery.USER_ID | surgery.EXPIRATION
_U32: Final = struct.Struct(">I")
MAX_ADDED: Final = 16 * 1024
"""Bytes that Redrive adds to a message at most: its properties have to fit one frame."""


def republished(
    delivery: Delivery, *, user: str, put: Mapping[bytes, bytes] | None = None
) -> bytes:
    """The properties to send for a delivery that is moved, with headers put in."""
    draft = Draft(delivery, user)
    if put:
        draft.ours.update(put)
    return draft.seal()


class Draft:
    """A delivery's properties, opened up: read what is known of it, add to `ours`, then `seal`.

    `user` is whom the broker knows us as. Raises `Unpublishable` if no broker would take them.
    """

    __slots__ = ("_redelivered", "opened", "ours", "x_death")

    def __init__(self, delivery: Delivery, user: str) -> None:
        raw = delivery.properties
        ours: dict[bytes, bytes] = {}
        try:
            opened = _OPENER.open_up(raw)
            if opened[0] & _RARE:
                opened = _OPENER.open_up(_set_properties_aside(raw, user, ours))
        except MalformedData as error:
            raise Unpublishable(f"the properties cannot be read: {error}") from error
        self.opened = opened
        taken = opened[3]
        self.x_death = taken.pop(_X_DEATH, None)
        self._redelivered = delivery.redelivered
        if ours or b"CC" in taken or b"BCC" in taken:
            _add_taken(taken, ours)
        else:
            ours = taken
        self.ours = ours
        """Redrive's own headers, by name, as raw fields."""

    def add_death(self, death: bytes) -> None:
        """Note a death that no broker did, as a raw table, behind those in `x-death`."""
        known = self.ours.get(_DEATHS)
        if self.x_death is not None:
            known = _deaths(known, self.x_death)
            self.x_death = None
        deaths = [*array_items(known), death]
        self.ours[_DEATHS] = fields.array(deaths[-headers.MAX_DEATHS :])

    def seal(self, *, keep_deaths: bool = True, only_on_the_way: bytes = b"") -> bytes:
        """The properties to send. `keep_deaths` moves what is in `x-death` to `redrive-deaths`;
        `only_on_the_way` is a header, name and field, that the broker itself removes again."""
        ours = self.ours
        if keep_deaths and self.x_death is not None:
            ours[_DEATHS] = _deaths(ours.get(_DEATHS), self.x_death)
        if self._redelivered:
            ours[_REDELIVERED] = _TRUE
        raw = surgery.close_up(self.opened, ours, only_on_the_way)
        if len(raw) > MAX_ADDED and sum(map(len, ours.values())) > MAX_ADDED:
            _shorten(ours)
            raw = surgery.close_up(self.opened, ours, only_on_the_way)
        if fields.may_hold_non_finite(raw) and _holds_non_finite(raw):
            raise Unpublishable(
                "a header is NaN or infinite, on which the broker closes the connection",
                remedy="mend the producer; a replay needs the header edited",
            )
        return raw


def _add_taken(taken: Mapping[bytes, bytes], ours: dict[bytes, bytes]) -> None:
    """Sort what was taken out: what is set aside now counts for more than what was before."""
    for name, field in taken.items():
        if name in _SET_ASIDE:
            ours[_SET_ASIDE[name]] = field
        else:
            ours.setdefault(name, field)


def _holds_non_finite(raw: bytes) -> bool:
    try:
        return Properties.read(raw).holds_non_finite()
    except MalformedData as error:
        raise Unpublishable(f"the properties cannot be read: {error}") from error


def marked_redelivered(raw: bytes) -> bytes:
    """Properties that were sent before, marked because this copy may be a second one."""
    return Properties.read(raw).with_headers({headers.REDELIVERED: _TRUE}).raw


def shortened(properties: Properties) -> Properties:
    """Properties that got headers of ours after they were sealed, those cut to their 16 KiB."""
    found = {name: properties.header_field(name) for name in headers.WRITTEN}
    ours = {octets(name): field for name, field in found.items() if field is not None}
    if sum(map(len, ours.values())) <= MAX_ADDED:
        return properties
    _shorten(ours)
    return properties.with_headers({name: ours[octets(name)] for name in found if found[name]})


def _set_properties_aside(raw: bytes, user: str, ours: dict[bytes, bytes]) -> bytes:
    properties = Properties.read(raw)
    owner = properties.get("user_id")
    if owner is not None and owner != user:
        ours[_USER_ID] = fields.longstr(str(owner))
        properties = properties.without("user_id")
    expiration = properties.get("expiration")
    if expiration is not None:
        ours[_EXPIRATION] = fields.longstr(str(expiration))
        properties = properties.without("expiration")
    return properties.raw


def _deaths(known: bytes | None, x_death: bytes) -> bytes:
    """`redrive-deaths` with the deaths of `x-death` added, oldest first, the newest kept.

    A field that is not the array it should be adds nothing: headers can be forged.
    """
    if known is None:
        if x_death[5:6] == b"F" and 10 + int.from_bytes(x_death[6:10]) == len(x_death):
            return x_death  # the common case: one death, the same array
    elif count_items(x_death) == 1 and 0 < count_items(known) < headers.MAX_DEATHS:
        # One more behind those that came before: as the bytes they are.
        size = len(known) + len(x_death) - 10
        return b"".join((b"A", _U32.pack(size), known[5:], x_death[5:]))
    deaths = [*array_items(known), *reversed(array_items(x_death))]
    return fields.array(deaths[-headers.MAX_DEATHS :])


def _shorten(ours: dict[bytes, bytes]) -> None:
    """Bring Redrive's headers within their 16 KiB. What is set aside of the publisher's stays."""

    def excess() -> int:
        return sum(map(len, ours.values())) - MAX_ADDED

    _cut_text(ours, _STACK, excess())
    deaths = array_items(ours.get(_DEATHS))
    if len(deaths) > headers.MAX_DEATHS and excess() > 0:  # forged: we write no more than that
        deaths = deaths[-headers.MAX_DEATHS :]
        ours[_DEATHS] = fields.array(deaths)
    while deaths and excess() > 0:
        deaths = deaths[1:]
        ours[_DEATHS] = fields.array(deaths)
    _cut_text(ours, _REASON, excess())


def _cut_text(ours: dict[bytes, bytes], name: bytes, excess: int) -> None:
    field = ours.get(name)
    if field is None or excess <= 0 or field[:1] != b"S":
        return
    kept = field[5 : max(5, len(field) - excess)]
    ours[name] = fields.longstr(kept.decode("utf-8", "ignore"))
