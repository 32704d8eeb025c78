"""What callers may send: texts, ids, pages and filters, checked before anything is asked.

A query parameter that there is not is refused: a misspelt filter would otherwise choose every
letter.
"""

from __future__ import annotations

from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    model_validator,
)
from pydantic.alias_generators import to_camel

from redrive.domain.durations import parse_duration
from redrive.domain.editing import LONGEST_REASON
from redrive.domain.filters import Filters, Searched
from redrive.domain.lifecycle import State, read_state
from redrive.domain.moments import before, read_moment

NO_NUL: Final = r"^[^\u0000]*$"
VISIBLE: Final = r"^[ -~]+$"
FINGERPRINT: Final = r"^[0-9a-fA-F]{1,16}$"
ID: Final = r"^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$"
MOST_IDS: Final = 1000

_EVERYWHERE: Final = Searched()
SEARCHED: Final = ContextVar("redrive_searched", default=_EVERYWHERE)
"""Where who has sent the request may search. Set for every request, so that no route forgets it."""
_HIDDEN: Final = "expected no such filter: a redaction rule hides it, and a filter would tell it"

Text = Annotated[str, Field(max_length=1000, pattern=NO_NUL)]
SomeText = Annotated[str, Field(min_length=1, max_length=1000, pattern=NO_NUL)]
Name = Annotated[str, Field(min_length=1, max_length=255, pattern=NO_NUL)]
Id = Annotated[str, Field(pattern=ID), AfterValidator(str.lower)]
Fingerprint = Annotated[str, Field(pattern=FINGERPRINT), AfterValidator(str.lower)]
Reason = Annotated[str, Field(max_length=LONGEST_REASON, pattern=NO_NUL)]


class Unmeant(ValueError):
    """A field that cannot be meant so; for validators that look at several."""

    def __init__(self, field: str, what: str) -> None:
        super().__init__(what)
        self.field = field


def _state(text: str) -> str:
    found = read_state(text.strip().lower())
    if found is None:
        raise ValueError(f"expected one of {', '.join(state.word for state in State)}")
    return found.value


_STATES: Final = [name for state in State for name in (state.value, state.word)]
StateName = Annotated[str, AfterValidator(_state), Field(json_schema_extra={"enum": _STATES})]


def _true(given: object) -> bool:
    # False would choose every letter, and whoever writes it may mean all the others.
    if given is not True and given != "true":
        raise ValueError("expected true, or no such filter")
    return True


OnlyTrue = Annotated[Literal[True], BeforeValidator(_true)]


class Input(BaseModel):
    """Something that a caller sends: camelCase, and nothing that is not known."""

    model_config = ConfigDict(
        alias_generator=to_camel, extra="forbid", frozen=True, hide_input_in_errors=True
    )


class Selection(Input):
    """Which letters, by the filters that every command and route has. All that are given hold."""

    id: Annotated[list[Id], Field(max_length=MOST_IDS)] = []
    status: Annotated[list[StateName], Field(max_length=20)] = []
    error_type: SomeText | None = Field(
        None, description="`*` and `?` are wildcards, here and below."
    )
    error_reason: Text | None = None
    queue: SomeText | None = Field(None, description="Where it failed.")
    exchange: Text | None = None
    routing_key: Text | None = None
    group: Fingerprint | None = None
    source: SomeText | None = None
    tag: SomeText | None = None
    possible_duplicate: OnlyTrue | None = Field(
        None, description="Only letters that may be a second copy of another."
    )
    start_date: Text | None = Field(None, description="A time, a day, or how long ago: `2h`.")
    end_date: Text | None = Field(None, description="The same; a day counts whole.")
    min_age: Text | None = Field(None, description="Collected at least so long ago: `10m`.")
    search: SomeText | None = Field(
        None, description="A text anywhere in it, but for what redaction rules may hide."
    )

    @model_validator(mode="after")
    def _times_can_be_read(self) -> Selection:
        self.filters()
        return self

    def filters(self, now: datetime | None = None) -> Filters:
        """The filters, with times counted from now."""
        now = now or datetime.now(UTC)
        searched = SEARCHED.get()
        if self.error_reason is not None and not searched.failures:
            raise Unmeant("errorReason", _HIDDEN)
        if self.tag is not None and not searched.tags:
            raise Unmeant("tag", _HIDDEN)
        start = moment("startDate", self.start_date, now)
        end = moment("endDate", self.end_date, now, end_of_day=True)
        if start is not None and end is not None and end < start:
            raise Unmeant("endDate", "expected a time after the one it begins from")
        if self.min_age is not None:
            try:
                oldest = before(now, parse_duration(self.min_age.strip()))
            except (ValueError, OverflowError):
                raise Unmeant("minAge", "expected a duration such as 10m or 2h") from None
            end = oldest if end is None else min(end, oldest)
        return Filters(
            ids=tuple(dict.fromkeys(self.id)),
            status=tuple(dict.fromkeys(State(each) for each in self.status)),
            error_type=self.error_type,
            error_reason=self.error_reason,
            queue=self.queue,
            exchange=self.exchange,
            routing_key=self.routing_key,
            group=self.group,
            source=self.source,
            tag=self.tag,
            possible_duplicate=self.possible_duplicate is not None,
            created_from=start,
            created_until=end,
            search=self.search,
            searched=searched,
        )

    def given(self) -> dict[str, Any]:
        """What was given, as the audit log has it."""
        return self.model_dump(by_alias=True, exclude_unset=True)


def moment(
    name: str, text: str | None, now: datetime, *, end_of_day: bool = False
) -> datetime | None:
    """A time as callers write it; None if none was given."""
    if text is None:
        return None
    try:
        return read_moment(text, now, end_of_day=end_of_day)
    except (ValueError, OverflowError):
        raise Unmeant(
            name,
            "expected a time such as 2026-02-11T12:00:00Z, a day such as 2026-02-11,"
            " or how long ago such as 2h",
        ) from None


class Paging(Input):
    """Which part of a list."""

    limit: Annotated[int, Field(ge=1, le=500)] = 50
    after: Text | None = Field(None, description="`next` of the page before, as it is.")


class SelectionPage(Selection):
    """Which letters, and which part of their list."""

    limit: Annotated[int, Field(ge=1, le=500)] = 50
    after: Text | None = Field(None, description="`next` of the page before, as it is.")

    def given(self) -> dict[str, Any]:
        given = super().given()
        return {name: value for name, value in given.items() if name not in ("limit", "after")}


class Chosen(Input):
    """Letters that are named; or a filter, with the number of letters that the caller saw."""

    ids: Annotated[list[Id], Field(min_length=1, max_length=MOST_IDS)] | None = None
    filter: Selection | None = None
    count: Annotated[int, Field(ge=0)] | None = Field(
        None, description="How many letters the filter was said to choose; another number is 409."
    )

    @model_validator(mode="after")
    def _one_of_them(self) -> Chosen:
        if (self.ids is None) == (self.filter is None):
            raise ValueError("expected ids, or a filter and a count")
        if self.filter is not None and self.count is None:
            raise Unmeant("count", "expected the number of letters that was shown")
        return self

    def told(self) -> dict[str, Any]:
        """Which letters, for the audit log."""
        if self.filter is None:
            return {"ids": self.ids}
        return {"filter": self.filter.given(), "count": self.count}
