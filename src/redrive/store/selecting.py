"""Filters as conditions of a query.

Every condition on a column with an index is one that the index serves; so is the time a letter was
made, because ids sort by it. `search` reads every letter that the other filters leave.
"""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import (
    Column,
    ColumnElement,
    LargeBinary,
    Select,
    exists,
    func,
    literal,
    or_,
    select,
    true,
)

from redrive.domain.filters import Filters, Searched
from redrive.domain.globs import is_glob
from redrive.domain.ids import first_id, last_id
from redrive.store.schema import redrive_envelope, redrive_letter, redrive_tag

_LETTER: Final = redrive_letter.c
_SEARCHED: Final = (
    _LETTER.message_id,
    _LETTER.error_type,
    _LETTER.queue,
    _LETTER.exchange,
    _LETTER.routing_key,
    _LETTER.source,
    _LETTER.collected_from,
    _LETTER.content_type,
)
_ESCAPE: Final = "\\"


def choose(*columns: Column[Any], filters: Filters, sqlite: bool) -> Select[Any]:
    """Columns of the letters that match."""
    query = select(*columns).select_from(redrive_letter).where(*conditions(filters, sqlite=sqlite))
    if is_listed_by_tag(filters):
        query = query.join(redrive_tag, redrive_tag.c.letter_id == _LETTER.id)
    return query


def conditions(filters: Filters, *, sqlite: bool) -> list[ColumnElement[bool]]:
    """What a row of `redrive_letter` must fulfil."""
    found: list[ColumnElement[bool]] = []
    if filters.ids:
        found.append(_LETTER.id.in_(filters.ids))
    if filters.status:
        found.append(_LETTER.status.in_([state.value for state in filters.status]))
    if filters.group is not None:
        found.append(_LETTER.fingerprint == filters.group)
    for column, text in (
        (_LETTER.error_type, filters.error_type),
        (_LETTER.error_reason, filters.error_reason),
        (_LETTER.queue, filters.queue),
        (_LETTER.exchange, filters.exchange),
        (_LETTER.routing_key, filters.routing_key),
        (_LETTER.source, filters.source),
    ):
        if text is not None:
            found.append(matches(column, text, sqlite=sqlite))
    if filters.tag is not None:
        found.append(_is_tagged(filters, filters.tag, sqlite=sqlite))
    if filters.possible_duplicate:
        found.append(_LETTER.possible_duplicate == true())
    if filters.created_from is not None:
        found.append(_LETTER.id >= first_id(filters.created_from))
    if filters.created_until is not None:
        found.append(_LETTER.id <= last_id(filters.created_until))
    if filters.search:
        found.append(_holds(filters.search, filters.searched, sqlite=sqlite))
    return found


def is_listed_by_tag(filters: Filters) -> bool:
    """Whether a query for these is joined with the letters of one tag. Of possible duplicates,
    which are few, each is asked for its tags."""
    return filters.tag is not None and not is_glob(filters.tag) and not filters.possible_duplicate


def _is_tagged(filters: Filters, tag: str, *, sqlite: bool) -> ColumnElement[bool]:
    wanted = matches(redrive_tag.c.tag, tag, sqlite=sqlite)
    if is_listed_by_tag(filters):
        return wanted
    if not is_glob(tag):
        return exists().where(redrive_tag.c.letter_id == _LETTER.id, wanted)
    return _LETTER.id.in_(select(redrive_tag.c.letter_id).where(wanted))


def matches(column: Column[Any], text: str, *, sqlite: bool) -> ColumnElement[bool]:
    """Whether a column is that text, in which `*` and `?` are wildcards."""
    if not is_glob(text):
        return column == text
    if sqlite:  # LIKE does not tell upper from lower case there
        return column.op("GLOB", is_comparison=True)(text.replace("[", "[[]"))
    return column.like(_like(text).replace("*", "%").replace("?", "_"), escape=_ESCAPE)


def _like(text: str) -> str:
    for special in (_ESCAPE, "%", "_"):
        text = text.replace(special, _ESCAPE + special)
    return text


def _holds(text: str, searched: Searched, *, sqlite: bool) -> ColumnElement[bool]:
    """Whether the text occurs in what people see of a letter, or in its body byte for byte."""
    columns = list(_SEARCHED)
    columns += [_LETTER.error_reason, _LETTER.error_stack] if searched.failures else []
    columns += [_LETTER.tags] if searched.tags else []
    pattern = f"%{_like(text)}%"
    seen = [column.ilike(pattern, escape=_ESCAPE) for column in columns]
    if not searched.bodies:
        return or_(*seen)
    wanted = literal(text.encode("utf-8", "surrogatepass"), LargeBinary)
    body = redrive_envelope.c.body
    at = func.instr(body, wanted) if sqlite else func.position(wanted.op("IN")(body))
    in_body = exists().where(redrive_envelope.c.letter_id == _LETTER.id, at > 0)
    return or_(*seen, in_body)
