"""Which letters belong together and keep their order."""

from __future__ import annotations

import pytest

from redrive.domain.letter import Envelope
from redrive.errors import OrderRefused
from redrive.work.ordering import read_ordering
from tests.services.letters import arrival

_BODY = b'{"order": {"id": 7, "the name": "x"}, "lines": [{"sku": "a"}, {"sku": "b"}]}'


def envelope(body: bytes) -> Envelope:
    return arrival(body).envelope


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("$.order.id", "[7]"),
        ("$['order']['the name']", '["x"]'),
        ("$.lines[0].sku", '["a"]'),
        ("$.lines[-1].sku", '["b"]'),
        ("$.order['id']", "[7]"),
        ("$.nosuch", None),
        ("$.order[0]", None),
        ("$.lines[2].sku", None),
    ],
)
def test_a_path_of_names_and_indexes_tells_the_value(path: str, value: str | None) -> None:
    assert read_ordering(path)(envelope(_BODY)) == value


@pytest.mark.parametrize("body", [b"no JSON", b"", b"[7]", b"null", b"\xff"])
def test_what_has_no_such_value_has_no_key(body: bytes) -> None:
    assert read_ordering("$.order.id")(envelope(body)) is None


@pytest.mark.parametrize(
    "path",
    [
        "$[?search(@.name, '(a|a)*b')]",
        "$[?match(@.name, '(a|a)*b')].id",
        "$[?@.id == 7]",
        "$..id",
        "$.*",
        "$.order.*.id",
        "$.lines[*].sku",
        "$.lines[0:1].sku",
        "$.order['id', 'the name']",
    ],
)
def test_a_path_that_could_take_for_ever_or_find_several_values_is_refused(path: str) -> None:
    with pytest.raises(OrderRefused, match=r"expected the path of one, such as \$\.order\.id"):
        read_ordering(path)


@pytest.mark.parametrize(
    "path",
    [
        "$.[",
        "$[?@.name =~ /(a|a)*b/]",
        "$.order.id | $.id",
        "$.order.~id",
        "$.a ",
        "$[1e400]",
        "$['\\ud800']",
        "$" + "[?@" * 300,
        "$[" + "(" * 900,
    ],
)
def test_what_is_no_path_of_the_standard_is_refused_in_one_line(path: str) -> None:
    with pytest.raises(
        OrderRefused, match=r"is no JSONPath: .*expected the path of one"
    ) as refused:
        read_ordering(path)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("text", ["order.id", "header:", "", "@.id", "^.id"])
def test_what_is_neither_a_header_nor_a_path_is_refused(text: str) -> None:
    with pytest.raises(OrderRefused, match="expected header:NAME or a JSONPath"):
        read_ordering(text)
