"""What is wrong with a request, in words for people.

The validator finds faults and describes them in its own terms. Here each gets the name that people
know the field by, as the console has it, and says what was expected; `where` stays what programs
read. No other place words a fault.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from redrive.server.inputs import FINGERPRINT, ID, NO_NUL, VISIBLE, Unmeant

_NAMES: Final = {
    "letter_id": "Letter id",
    "replay_id": "Replay id",
    "token_id": "Token id",
    "status": "State",
    "startDate": "From",
    "endDate": "Until",
    "minAge": "At least so old",
    "possibleDuplicate": "Possible duplicates",
    "batchSize": "Letters a batch",
    "rate": "At most a second",
    "assignee": "Looked after by",
    "note": "What is known",
    "to": "Where to",
}
"""Where people know a field by another name than its own, put into words."""
_PATTERNS: Final = {
    ID: "expected an id such as 0199f2c4-8a51-7c3e-9d10-5b6f7a8c9d0e",
    FINGERPRINT: "expected a fingerprint, 1 to 16 digits of 0-9 and a-f",
    NO_NUL: "it has a character that cannot be stored (NUL)",
    VISIBLE: "expected letters, digits and signs of ASCII",
}
_WHOLE: Final = "expected a whole number"
_NUMBER: Final = "expected a number"
_TRUTH: Final = "expected true or false"
_OBJECT: Final = "expected an object of names and values"

_Words: TypeAlias = Callable[[Mapping[str, Any]], str]

_WORDS: Final[dict[str, str | _Words]] = {
    "missing": "it is missing",
    "extra_forbidden": "there is nothing of this name here",
    "string_type": "expected text",
    "string_too_short": lambda given: _at_least(given["min_length"]),
    "string_too_long": lambda given: f"expected at most {given['max_length']:,} characters",
    "string_pattern_mismatch": lambda given: _PATTERNS.get(
        given["pattern"], "it has characters that cannot be in it"
    ),
    "int_type": _WHOLE,
    "int_parsing": _WHOLE,
    "int_parsing_size": _WHOLE,
    "int_from_float": _WHOLE,
    "float_type": _NUMBER,
    "float_parsing": _NUMBER,
    "finite_number": _NUMBER,
    "bool_type": _TRUTH,
    "bool_parsing": _TRUTH,
    "greater_than": lambda given: f"expected more than {_number(given['gt'])}",
    "greater_than_equal": lambda given: f"expected {_number(given['ge'])} or more",
    "less_than_equal": lambda given: f"expected {_number(given['le'])} or less",
    "enum": lambda given: f"expected {given['expected']}",
    "literal_error": lambda given: f"expected {given['expected']}",
    "too_short": lambda given: f"expected at least {given['min_length']:,} of them",
    "too_long": lambda given: f"expected at most {given['max_length']:,} of them",
    "list_type": "expected a list",
    "dict_type": _OBJECT,
    "model_type": _OBJECT,
    "model_attributes_type": _OBJECT,
    "json_invalid": lambda given: f"it is not JSON: {given['error']}",
    "value_error": lambda given: str(given["error"]),
}


def fault(place: Sequence[str | int], what: str) -> dict[str, str]:
    """One thing that is wrong with a request, as the API tells it."""
    return {"where": ".".join(str(step) for step in place), "name": _name(place), "what": what}


def faults_of(found: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """What the validator found, in words."""
    return [_fault(each) for each in found]


def _fault(found: Mapping[str, Any]) -> dict[str, str]:
    given: Mapping[str, Any] = found.get("ctx") or {}
    place = list(found["loc"])
    error = given.get("error")
    if isinstance(error, Unmeant):
        place.append(error.field)
    if found["type"] == "json_invalid":
        place = place[:1]
    words = _WORDS.get(found["type"])
    if words is None:
        what = str(found["msg"]).replace("Input should be", "expected")
    else:
        what = words if isinstance(words, str) else words(given)
    return fault(place, what)


def _at_least(characters: int) -> str:
    if characters == 1:
        return "it must not be empty"
    return f"expected at least {characters:,} characters"


def _number(limit: float) -> str:
    return f"{int(limit):,}" if limit == int(limit) else f"{limit:,}"


def _name(place: Sequence[str | int]) -> str:
    """`body.filter.errorType` is the Error type."""
    steps = [step for step in place[1:] if isinstance(step, str)]
    if not steps:
        return {"query": "The query", "path": "The address"}.get(str(place[0]), "The body")
    own = steps[-1]
    if own in _NAMES:
        return _NAMES[own]
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", own).replace("_", " ")
    return words[:1].upper() + words[1:].lower()
