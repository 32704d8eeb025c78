"""Column types that mean the same on both engines.

- A moment is an aware datetime, kept to the millisecond: `timestamptz` on PostgreSQL, milliseconds
  since 1970 on SQLite, which has no type for it.
- A letter's id is a UUID as text: `uuid` on PostgreSQL, its 16 bytes on SQLite. Both sort alike.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final

from sqlalchemy import BigInteger, Dialect, LargeBinary
from sqlalchemy.dialects import postgresql
from sqlalchemy.types import TypeDecorator, TypeEngine

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


class Moment(TypeDecorator[datetime]):
    """An aware datetime, to the millisecond."""

    impl = BigInteger
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        if dialect.name == "postgresql":
            return dialect.type_descriptor(postgresql.TIMESTAMP(timezone=True))
        return dialect.type_descriptor(BigInteger())

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> Any:
        if value is None:
            return None
        whole = value.replace(microsecond=value.microsecond // 1000 * 1000)
        return to_milliseconds(whole) if dialect.name == "sqlite" else whole

    def process_result_value(self, value: Any, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        if dialect.name == "sqlite":
            return _EPOCH + int(value) * _MILLISECOND
        moment: datetime = value.astimezone(UTC)
        return moment


class LetterId(TypeDecorator[str]):
    """A UUID, as text on our side."""

    impl = LargeBinary
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        if dialect.name == "postgresql":
            return dialect.type_descriptor(postgresql.UUID(as_uuid=False))
        return dialect.type_descriptor(LargeBinary(16))

    def process_bind_param(self, value: str | None, dialect: Dialect) -> Any:
        if value is None or dialect.name == "postgresql":
            return value
        return to_octets(value)

    def process_result_value(self, value: Any, dialect: Dialect) -> str | None:
        if value is None:
            return None
        if dialect.name == "postgresql":
            return str(value)
        return of_octets(value)


def to_milliseconds(moment: datetime) -> int:
    """A moment as SQLite keeps it."""
    return round(moment.timestamp() * 1000)


def to_octets(letter_id: str) -> bytes:
    """A letter's id as SQLite keeps it."""
    return bytes.fromhex(letter_id.replace("-", ""))


def of_octets(octets: bytes) -> str:
    """A letter's id, of its sixteen bytes."""
    digits = octets.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
