"""What is wrong with a request is said in words for people."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from redrive.server.faults import fault, faults_of
from redrive.server.inputs import Chosen, Id, Input, SelectionPage
from redrive.server.policies import NewPolicy
from redrive.server.replays import NewReplay
from redrive.server.tokens import NewToken
from redrive.server.users import NewUser

ONE = "00000000-0000-7000-8000-000000000000"


def said(kind: type[Input], given: Any) -> list[str]:
    """What a request with this body is answered."""
    with pytest.raises(ValidationError) as caught:
        kind.model_validate(given)
    found = [{**each, "loc": ("body", *each["loc"])} for each in caught.value.errors()]
    return [f"{each['name']}: {each['what']}" for each in faults_of(found)]


@pytest.mark.parametrize(
    ("kind", "given", "words"),
    [
        (NewPolicy, {"name": "a", "maxRetries": -1}, "Max retries: expected 0 or more"),
        (NewPolicy, {"name": "a", "maxRetries": None}, "Max retries: expected a whole number"),
        (NewPolicy, {"name": "a", "maxRetries": 1.5}, "Max retries: expected a whole number"),
        (NewPolicy, {"name": "a"}, "Max retries: it is missing"),
        (NewPolicy, {"name": "", "maxRetries": 1}, "Name: it must not be empty"),
        (
            NewPolicy,
            {"name": "a", "maxRetries": 1, "returnTo": "me"},
            "Return to: expected 'queue' or 'exchange'",
        ),
        (
            NewUser,
            {"name": "a", "role": "viewer", "password": "short"},
            "Password: expected at least 8 characters",
        ),
        (
            NewUser,
            {"name": "a", "role": "boss"},
            "Role: expected 'viewer', 'operator' or 'admin'",
        ),
        (NewToken, {"name": "a", "role": "admin", "days": 9999}, "Days: expected 3,650 or less"),
        (
            NewToken,
            {"name": "é", "role": "admin"},
            "Name: expected letters, digits and signs of ASCII",
        ),
        (
            SelectionPage,
            {"minAge": "soon"},
            "At least so old: expected a duration such as 10m or 2h",
        ),
        (
            SelectionPage,
            {"startDate": "1h", "endDate": "2h"},
            "Until: expected a time after the one it begins from",
        ),
        (
            SelectionPage,
            {"possibleDuplicate": "false"},
            "Possible duplicates: expected true, or no such filter",
        ),
        (
            Chosen,
            {"filter": {"possibleDuplicate": False}, "count": 1},
            "Possible duplicates: expected true, or no such filter",
        ),
        (SelectionPage, {"errortype": "x"}, "Errortype: there is nothing of this name here"),
        (SelectionPage, {"queue": "a\0"}, "Queue: it has a character that cannot be stored (NUL)"),
        (SelectionPage, {"queue": "a" * 1001}, "Queue: expected at most 1,000 characters"),
        (SelectionPage, {"queue": 1}, "Queue: expected text"),
        (Chosen, {"ids": []}, "Ids: expected at least 1 of them"),
        (Chosen, {"filter": {}}, "Count: expected the number of letters that was shown"),
        (Chosen, {"filter": []}, "Filter: expected an object of names and values"),
        (NewReplay, {"count": 1, "rate": 0}, "At most a second: expected more than 0"),
        (NewReplay, {"count": 1, "rate": "fast"}, "At most a second: expected a number"),
        (NewReplay, {"count": 1, "withDoubtful": "?"}, "With doubtful: expected true or false"),
    ],
)
def test_a_fault_names_its_field_as_people_do_and_says_what_was_expected(
    kind: type[Input], given: Any, words: str
) -> None:
    assert said(kind, given) == [words]


def test_a_state_that_there_is_not_is_answered_with_those_that_there_are() -> None:
    (words,) = said(SelectionPage, {"status": ["banana"]})
    assert words.startswith("State: expected one of pending, processing,")


def test_an_id_that_is_none_is_answered_with_an_example_and_no_pattern() -> None:
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(Id).validate_python("1")
    (found,) = faults_of([{**caught.value.errors()[0], "loc": ("path", "letter_id")}])
    assert found["where"] == "path.letter_id"
    assert found["name"] == "Letter id"
    assert found["what"].startswith("expected an id such as 0")


def test_where_a_fault_is_stays_what_programs_read() -> None:
    assert fault(("query", "minAge"), "x")["where"] == "query.minAge"
    assert fault(("body", "filter", "status", 0), "x") == {
        "where": "body.filter.status.0",
        "name": "State",
        "what": "x",
    }
    broken = {"type": "json_invalid", "loc": ("body", 3), "msg": "", "ctx": {"error": "no end"}}
    assert faults_of([broken]) == [
        {"where": "body", "name": "The body", "what": "it is not JSON: no end"}
    ]
