"""The search for planted secrets finds them: else the tests that search prove nothing."""

from __future__ import annotations

import base64
import json
from urllib.parse import quote

import pytest

from tests.services.planting import Garden


@pytest.mark.parametrize("before", ["", "u:", "us:", "use:"])
@pytest.mark.parametrize(
    "form",
    [
        str,
        quote,
        json.dumps,
        lambda text: base64.b64encode(text.encode()).decode(),
        lambda text: text.encode().hex(),
        lambda text: text.partition("@")[0],
        lambda text: text.rpartition("'")[2],
    ],
    ids=["plain", "percent-encoded", "JSON", "base64", "hex", "first half", "second half"],
)
def test_a_planted_secret_is_found_in_every_form(form: object, before: str) -> None:
    garden = Garden()
    assert callable(form)
    shown = f"it is {form(before + garden['one'].value)}, and no other"
    assert garden["two"].value not in shown
    assert garden.found_in(shown) == ["one"]
    assert garden.found_in(shown, but=frozenset({"one"})) == []
    assert garden.found_in("nothing of the kind") == []
