r"""Java's properties format, and the policies in it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.domain.policy import Policy
from redrive.domain.properties import decode_properties, parse_properties, read_policies


def pairs(text: str) -> list[tuple[str, str]]:
    return [(found.key, found.value) for found in parse_properties(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1", [("a", "1")]),
        ("a:1", [("a", "1")]),
        ("a 1", [("a", "1")]),
        ("a\t\f 1", [("a", "1")]),
        ("  a  =  1", [("a", "1")]),
        ("a == 1", [("a", "= 1")]),
        ("a", [("a", "")]),
        ("=1", [("", "1")]),
        ("# a=1\n ! b=2\n\n  \nc=3", [("c", "3")]),
        ("a=1 # no comment", [("a", "1 # no comment")]),
        ("order.#=1", [("order.#", "1")]),
        (r"a\=b\:c\ d=1", [("a=b:c d", "1")]),
        (r"a\\=1", [("a\\", "1")]),
        ("a=1,\\\n   2", [("a", "1,2")]),
        ("a\\\n  b=1", [("ab", "1")]),
        ("a=1\\\\\nb=2", [("a", "1\\"), ("b", "2")]),
        ("# comment \\\na=1", [("a", "1")]),
        ("a=1\\\n# still a", [("a", "1# still a")]),
        ("a=1\\", [("a", "1")]),
        ("a=1\r\nb=2\rc=3", [("a", "1"), ("b", "2"), ("c", "3")]),
        (r"\u0061=\u00fc", [("a", "ü")]),
        (r"a=\ud83d\ude00", [("a", "😀")]),
        (r"a=\t\n\z", [("a", "\t\nz")]),
        ("ü=ß", [("ü", "ß")]),
    ],
)
def test_the_format_is_read_as_java_reads_it(text: str, expected: list[tuple[str, str]]) -> None:
    assert pairs(text) == expected


def as_java_writes(text: str) -> str:
    special = {"\t": r"\t", "\n": r"\n", "\r": r"\r", "\f": r"\f"}
    units = text.encode("utf-16-be")
    written = ""
    for high, low in zip(units[::2], units[1::2], strict=True):
        code = high << 8 | low
        character = chr(code)
        if character in special:
            written += special[character]
        elif character in "\\ =:#!":
            written += "\\" + character
        elif 0x20 < code < 0x7F:
            written += character
        else:
            written += f"\\u{code:04X}"
    return written


@given(st.lists(st.tuples(st.text(), st.text())))
def test_what_java_stores_is_loaded_again(content: list[tuple[str, str]]) -> None:
    text = "#Sun Nov 16 02:38:00 UTC 2025\n"
    text += "".join(f"{as_java_writes(key)}={as_java_writes(value)}\n" for key, value in content)
    assert pairs(text) == content


@given(st.binary(max_size=200))
def test_no_file_is_too_broken_to_be_read(content: bytes) -> None:
    read_policies(decode_properties(content))
    read_policies(decode_properties(b"redrive.policy." + content))


def test_text_is_utf_8_or_else_iso_8859_1() -> None:
    assert decode_properties("ü".encode()) == "ü"
    assert decode_properties("ü".encode("iso-8859-1")) == "ü"
    assert decode_properties(b"\xef\xbb\xbfa=1") == "a=1"


def test_policies_are_read_and_other_keys_left_alone() -> None:
    policies, problems = read_policies(
        "server.port=8080\nredrive.policy.order.*=4\nredrive.policy.rk.test.fail = 2  \n"
        "redrive.policies=7\n"
    )
    assert policies == [
        Policy(name="order.*", max_retries=4, source="properties"),
        Policy(name="rk.test.fail", max_retries=2, source="properties"),
    ]
    assert problems == []


def test_of_a_key_that_stands_twice_the_last_counts() -> None:
    policies, _ = read_policies("redrive.policy.a=1\nredrive.policy.a=2\n")
    assert [policy.max_retries for policy in policies] == [2]


@pytest.mark.parametrize("value", ["-1", "", "many", "1.5", "2147483648", "9" * 99, "٣"])
def test_a_policy_that_is_no_whole_number_is_reported_with_its_line(value: str) -> None:
    policies, (problem,) = read_policies(f"\n\nredrive.policy.a={value}\nredrive.policy.b=1")
    assert [policy.name for policy in policies] == ["b"]
    assert (problem.place, problem.name) == ("line 3", "a")
    assert "expected a whole number from 0 to 2147483647" in problem.reason


def test_a_policy_without_a_routing_key_is_reported() -> None:
    _, (problem,) = read_policies("redrive.policy.=3")
    assert "is no routing key" in problem.reason
