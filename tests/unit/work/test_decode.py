"""Bodies for display: encodings undone within bounds, JSON exactly, and nothing ever raises."""

from __future__ import annotations

import gzip
import json
import sys
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.amqp.encodings import MOST_DECODED
from redrive.work.decode import Decoded, Kind, decode_body, hex_dump, indent_json, parse_json

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

TEXT = '{"größe": 12345678901234567890123}'
JSON = TEXT.encode()


def raw_deflate(data: bytes) -> bytes:
    packed = zlib.compressobj(wbits=-15)
    return packed.compress(data) + packed.flush()


@pytest.mark.parametrize(
    ("encoding", "pack"),
    [
        ("gzip", gzip.compress),
        ("GZIP", gzip.compress),
        ("x-gzip", gzip.compress),
        ("deflate", zlib.compress),
        ("deflate", raw_deflate),
        ("zstd", zstd.compress),
        ("gzip, deflate", lambda data: zlib.compress(gzip.compress(data))),
        ("identity, zstd", zstd.compress),
        ("gzip", lambda data: gzip.compress(data[:5]) + gzip.compress(data[5:])),
        ("gzip", lambda data: gzip.compress(data) + b"\x00" * 100),
        ("zstd", lambda data: zstd.compress(data[:5]) + zstd.compress(data[5:])),
    ],
)
def test_content_encodings_are_undone(encoding: str, pack: object) -> None:
    assert callable(pack)
    decoded = decode_body(pack(JSON), "application/json", encoding)
    assert (decoded.kind, decoded.content, decoded.text) == (Kind.JSON, JSON, TEXT)
    assert decoded.document == {"größe": 12345678901234567890123}
    assert decoded.problem is None
    assert decoded.undone


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "zstd", "gzip, gzip", "br", "zst"])
def test_what_is_not_so_encoded_is_shown_undecoded_and_said_so(encoding: str) -> None:
    cut_off = gzip.compress(JSON)[:-5]
    decoded = decode_body(cut_off, "application/json", encoding)
    assert decoded.content == cut_off
    assert decoded.kind is Kind.BINARY
    assert decoded.problem is not None
    assert encoding.split(",", maxsplit=1)[0] in decoded.problem


@pytest.mark.parametrize(
    ("encoding", "pack"),
    [("gzip", gzip.compress), ("deflate", zlib.compress), ("zstd", zstd.compress)],
)
def test_a_bomb_is_not_unfolded(encoding: str, pack: object) -> None:
    assert callable(pack)
    largest = pack(bytes(MOST_DECODED))
    assert len(decode_body(largest, None, encoding).content) == MOST_DECODED
    decoded = decode_body(pack(bytes(MOST_DECODED + 1)), None, encoding)
    assert decoded.problem == f"would be larger than 16 MiB without its encoding {encoding!r}"


def test_a_bomb_of_many_empty_members_is_not_unfolded() -> None:
    decoded = decode_body(gzip.compress(b"") * 10_000, None, "gzip")
    assert decoded.problem is not None


def test_more_encodings_than_anybody_means_are_not_undone() -> None:
    assert decode_body(b"x", None, ", ".join(["gzip"] * 50)).problem is not None


def test_an_empty_body_is_empty_whatever_its_encoding() -> None:
    decoded = decode_body(b"", "application/json", "gzip")
    assert (decoded.kind, decoded.text, decoded.problem) == (Kind.EMPTY, "", None)


@pytest.mark.parametrize(
    ("body", "content_type", "encoding", "kind", "text"),
    [
        (b"hello", "text/plain", None, Kind.TEXT, "hello"),
        ("größe".encode(), None, None, Kind.TEXT, "größe"),
        ("größe".encode("latin-1"), "text/plain; charset=ISO-8859-1", None, Kind.TEXT, "größe"),
        ("größe".encode("latin-1"), 'text/plain;charset="latin1"', None, Kind.TEXT, "größe"),
        ("größe".encode("latin-1"), "text/plain", "iso-8859-1", Kind.TEXT, "größe"),
        ("größe".encode("latin-1"), "text/plain", None, Kind.BINARY, None),
        (b"hello", "text/plain; charset=klingon", None, Kind.TEXT, "hello"),
        (b"hello", "text/plain; charset=zlib", None, Kind.TEXT, "hello"),
        (b"\x00\x01", None, None, Kind.BINARY, None),
        (b"a\x00b", "text/plain", None, Kind.BINARY, None),
        (b"12", "text/plain", None, Kind.TEXT, "12"),
        (b"12", "application/json", "utf-8", Kind.JSON, "12"),
        (b"[1]", "text/plain", None, Kind.JSON, "[1]"),
        (b"[1]", "application/vnd.shop+json; v=2", None, Kind.JSON, "[1]"),
        ("[1]".encode("utf-16"), "application/json", None, Kind.JSON, "[1]"),
        (b"\xef\xbb\xbf[1]", "application/json", None, Kind.JSON, "[1]"),
        (b'{"a": NaN}', "application/json", None, Kind.TEXT, '{"a": NaN}'),
        (b'{"a": 1e999}', "application/json", None, Kind.TEXT, '{"a": 1e999}'),
        (b'{"a": 1', "application/json", None, Kind.TEXT, '{"a": 1'),
    ],
)
def test_a_body_is_understood_by_its_properties_and_by_itself(
    body: bytes, content_type: str | None, encoding: str | None, kind: Kind, text: str | None
) -> None:
    decoded = decode_body(body, content_type, encoding)
    assert (decoded.kind, decoded.text, decoded.problem) == (kind, text, None)


def test_huge_integers_are_exact_and_beyond_python_s_limit_it_is_text() -> None:
    assert parse_json("9" * 4000) == (int("9" * 4000), False)
    assert parse_json("9" * 5000) is None


def test_repeated_keys_are_noticed() -> None:
    assert parse_json('{"a": 1, "b": {"a": 2}}') == ({"a": 1, "b": {"a": 2}}, False)
    assert parse_json('{"b": {"a": 1, "a": 2}}') == ({"b": {"a": 2}}, True)


@pytest.mark.parametrize("depth", [101, 5000, 200_000])
def test_json_that_is_too_deep_is_text(depth: int) -> None:
    decoded = decode_body(b"[" * depth + b"]" * depth, "application/json", None)
    assert decoded.kind is Kind.TEXT
    assert decode_body(b"[" * 100 + b"]" * 100, None, None).kind is Kind.JSON


@given(
    st.binary(max_size=200),
    st.none() | st.text(max_size=30) | st.sampled_from(["application/json", "text/plain"]),
    st.none() | st.text(max_size=30) | st.sampled_from(["gzip", "deflate", "zstd", "utf-16"]),
)
def test_no_body_and_no_property_raises(
    body: bytes, content_type: str | None, encoding: str | None
) -> None:
    decoded = decode_body(body, content_type, encoding)
    assert isinstance(decoded, Decoded)
    assert (decoded.text is None) == (decoded.kind is Kind.BINARY)


_documents = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(_documents, st.sampled_from([None, 1, 4]))
def test_indented_json_says_the_same(document: object, indent: int | None) -> None:
    text = json.dumps(document, indent=indent)
    assert indent_json(text) == json.dumps(document, indent=2)


def test_indenting_changes_no_number_and_no_string() -> None:
    text = '{"a":1.10e+01,"a":"\\u00e9\\"{","b":[],"c":{},"d":[1,{"e":null}]}'
    assert indent_json(text) == (
        '{\n  "a": 1.10e+01,\n  "a": "\\u00e9\\"{",\n  "b": [],\n  "c": {},\n'
        '  "d": [\n    1,\n    {\n      "e": null\n    }\n  ]\n}'
    )


def test_a_hex_dump_shows_where_which_and_what() -> None:
    assert hex_dump(bytes(range(60, 80)), offset=16) == [
        "00000010  3c 3d 3e 3f 40 41 42 43  44 45 46 47 48 49 4a 4b  |<=>?@ABCDEFGHIJK|",
        "00000020  4c 4d 4e 4f                                       |LMNO|",
    ]
