"""JSON Patch on raw text: right by the standard, and nothing else in the text changes."""

from __future__ import annotations

import contextlib
import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.domain.json_patch import read_patch
from redrive.errors import EditRefused, PatchDoesNotApply

LARGE = 12345678901234567890


def patched(text: str, *operations: dict[str, Any]) -> str:
    return read_patch(json.dumps(operations)).apply(text)


def refusal(text: str, *operations: dict[str, Any]) -> str:
    with pytest.raises(PatchDoesNotApply) as refused:
        patched(text, *operations)
    return str(refused.value)


# Only what is named changes


def test_a_replaced_value_leaves_all_other_text_as_it_was() -> None:
    text = '{ "id": 12345678901234567890, "rate" : 1.10,\n\t"max": 1e400, "z": 1, "a": 2 }\n'
    assert patched(text, {"op": "replace", "path": "/z", "value": 7}) == text.replace(
        '"z": 1', '"z": 7'
    )


def test_a_value_goes_in_as_the_patch_writes_it() -> None:
    patch = read_patch('[{"op": "replace", "path": "/a", "value": {"n": 1.50, "big": 1E400}}]')
    assert patch.apply('{"a": null}') == '{"a": {"n": 1.50, "big": 1E400}}'


def test_keys_that_stand_twice_elsewhere_survive() -> None:
    text = '{"a": 1, "a": 2, "b": 3}'
    assert patched(text, {"op": "remove", "path": "/b"}) == '{"a": 1, "a": 2}'


@pytest.mark.parametrize(
    ("text", "path", "expected"),
    [
        ('{"a":1}', "/b", '{"a":1,"b":9}'),
        ('{"a": 1}', "/b", '{"a": 1, "b": 9}'),
        ('{\n  "a": 1\n}', "/b", '{\n  "a": 1,\n  "b": 9\n}'),
        ("{}", "/b", '{"b": 9}'),
        ("[1, 2]", "/1", "[1, 9, 2]"),
        ("[1, 2]", "/0", "[9, 1, 2]"),
        ("[1, 2]", "/-", "[1, 2, 9]"),
        ("[\n  1\n]", "/1", "[\n  1,\n  9\n]"),
        ("[]", "/-", "[9]"),
        (" 1 ", "", " 9 "),
    ],
)
def test_what_is_added_is_written_like_its_neighbours(text: str, path: str, expected: str) -> None:
    assert patched(text, {"op": "add", "path": path, "value": 9}) == expected


@pytest.mark.parametrize(
    ("text", "path", "expected"),
    [
        ('{"a": 1, "b": 2, "c": 3}', "/a", '{"b": 2, "c": 3}'),
        ('{"a": 1, "b": 2, "c": 3}', "/b", '{"a": 1, "c": 3}'),
        ('{"a": 1, "b": 2, "c": 3}', "/c", '{"a": 1, "b": 2}'),
        ('{\n  "a": 1\n}', "/a", "{\n}"),
        ("[1, [2, 3]]", "/1/0", "[1, [3]]"),
    ],
)
def test_what_is_removed_goes_with_its_comma(text: str, path: str, expected: str) -> None:
    assert patched(text, {"op": "remove", "path": path}) == expected


def test_a_moved_value_keeps_its_text() -> None:
    text = '{"a": 1.10, "b": {}}'
    moved = patched(text, {"op": "move", "from": "/a", "path": "/b/c"})
    assert moved == '{"b": {"c": 1.10}}'


def test_a_copied_value_keeps_its_text() -> None:
    copied = patched(f'{{"a": {LARGE}}}', {"op": "copy", "from": "/a", "path": "/b"})
    assert copied == f'{{"a": {LARGE}, "b": {LARGE}}}'


def test_a_value_that_is_moved_where_it_is_stays() -> None:
    text = '{"a": 1, "b": 2}'
    assert patched(text, {"op": "move", "from": "/a", "path": "/a"}) == text


def test_pointers_have_escapes_and_keys_have_theirs() -> None:
    text = r'{"a/b": 1, "m~n": 2, "\u00e9": 3, "": 4}'
    changed = patched(
        text,
        {"op": "replace", "path": "/a~1b", "value": 10},
        {"op": "replace", "path": "/m~0n", "value": 20},
        {"op": "replace", "path": "/é", "value": 30},
        {"op": "replace", "path": "/", "value": 40},
    )
    assert changed == r'{"a/b": 10, "m~n": 20, "\u00e9": 30, "": 40}'


@pytest.mark.parametrize(
    ("found", "value"),
    [("1.0", "1"), ("100", "1e2"), ('"a"', r'"\u0061"'), ('{"a":1,"b":[]}', '{"b": [], "a": 1}')],
)
def test_a_test_compares_what_is_meant_not_how_it_is_written(found: str, value: str) -> None:
    patch = read_patch(f'[{{"op": "test", "path": "/v", "value": {value}}}]')
    assert patch.apply(f'{{"v": {found}}}') == f'{{"v": {found}}}'


@pytest.mark.parametrize(
    ("found", "value"),
    [("1", "true"), (f"{2**53}", f"{2**53 + 1}"), ('"1"', "1"), ("[1]", "[1, 1]"), ("0", "null")],
)
def test_a_test_that_fails_says_what_it_wanted_and_not_what_it_found(
    found: str, value: str
) -> None:
    patch = read_patch(f'[{{"op": "test", "path": "/v", "value": {value}}}]')
    with pytest.raises(PatchDoesNotApply) as refused:
        patch.apply(f'{{"v": {found}}}')
    assert str(refused.value) == f"operation 1 (test /v): it is not {value}"


# What does not apply


@pytest.mark.parametrize(
    ("text", "operation", "reason"),
    [
        ("{}", {"op": "remove", "path": "/a"}, 'the document has no "a"'),
        ('{"o": {}}', {"op": "replace", "path": "/o/a", "value": 1}, '/o has no "a"'),
        ("{}", {"op": "add", "path": "/a/b", "value": 1}, 'the document has no "a"'),
        ("[1]", {"op": "remove", "path": "/1"}, "a list of 1, without an index 1"),
        ("[1]", {"op": "add", "path": "/3", "value": 1}, "nothing can be added at index 3"),
        ("[1]", {"op": "remove", "path": "/-"}, '"-" is no index'),
        ("[1]", {"op": "remove", "path": "/01"}, '"01" is no index'),
        ("[]", {"op": "remove", "path": "/0"}, "a list of 0, without an index 0"),
        ('"a"', {"op": "add", "path": "/b", "value": 1}, "neither an object nor a list"),
        ('{"a":1,"a":2}', {"op": "remove", "path": "/a"}, '"a" twice: it cannot be told which'),
        ('{"a":1,"a":2}', {"op": "add", "path": "/a", "value": 1}, '"a" twice'),
        ("{}", {"op": "remove", "path": ""}, "the whole document cannot be removed"),
        ('{"a":{}}', {"op": "move", "from": "/a", "path": "/a/b"}, "moved into itself"),
        ("{}", {"op": "copy", "from": "/x", "path": "/y"}, 'from /x: the document has no "x"'),
    ],
)
def test_an_operation_that_does_not_apply_says_why(
    text: str, operation: dict[str, Any], reason: str
) -> None:
    said = refusal(text, operation)
    assert said.startswith(f"operation 1 ({operation['op']} ")
    assert reason in said


def test_the_operation_that_does_not_apply_is_named_by_its_number() -> None:
    said = refusal('{"a": 1}', {"op": "remove", "path": "/a"}, {"op": "remove", "path": "/a"})
    assert said.startswith("operation 2 (remove /a): ")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("", "is no JSON"),
        ("hello", "is no JSON"),
        ('{"a": NaN}', "it has no NaN"),
        ("[" * 100_000, "is nested too deep"),
        ('{"a": 1,}', "line 1, column 9"),
    ],
)
def test_a_body_that_is_no_json_is_not_patched(body: str, reason: str) -> None:
    said = refusal(body, {"op": "add", "path": "", "value": 1})
    assert said.startswith("the body ")
    assert reason in said


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "the patch is no JSON"),
        ("{}", "expected a list of operations"),
        ("[]", "has no operation"),
        ("[1]", "operation 1 of the patch: expected an object"),
        ('[{"path": "/a"}]', "expected an op, one of add"),
        ('[{"op": "merge", "path": "/a"}]', "expected an op, one of add"),
        ('[{"op": "add", "path": "/a"}]', "expected a value for add"),
        ('[{"op": "remove"}]', "expected a path such as"),
        ('[{"op": "remove", "path": 7}]', "expected a path such as"),
        ('[{"op": "remove", "path": "a"}]', "expected a path such as"),
        ('[{"op": "remove", "path": "/~2"}]', "expected a path such as"),
        ('[{"op": "move", "path": "/a"}]', "expected a from for move"),
        ('[{"op": "remove", "op": "add", "path": "/a"}]', "expected 'op' only once"),
    ],
)
def test_what_is_no_patch_says_what_is_wrong_with_it(text: str, reason: str) -> None:
    with pytest.raises(EditRefused) as refused:
        read_patch(text)
    assert reason in str(refused.value)


def test_members_that_the_standard_does_not_know_are_passed_over() -> None:
    text = '[{"op": "remove", "path": "/a", "comment": "no longer used"}]'
    assert read_patch(text).apply('{"a": 1}') == "{}"


def test_numbers_beyond_all_arithmetic_are_kept() -> None:
    text = '{"a": 1e99999999999999999999, "b": ' + "9" * 5000 + ', "c": 1}'
    changed = patched(text, {"op": "remove", "path": "/c"})
    assert changed == text.replace(', "c": 1', "")
    patch = read_patch('[{"op": "test", "path": "/a", "value": 1e99999999999999999999}]')
    assert patch.apply(text) == text


# Any document

_blanks = st.text(" \t\n\r", max_size=2)
_scalars = st.sampled_from(
    ["0", "-0", "1.10", "1e400", "2E-3", str(LARGE), "true", "false", "null", '""', r'"\u0061"']
) | st.text(max_size=5).map(json.dumps)
_keys = st.sampled_from(["a", "b", "c/d", "~", "", "0", "é", "\ud800"])


def _write_list(parts: list[tuple[str, str, str]]) -> str:
    return "[" + ",".join(f"{left}{text}{right}" for left, text, right in parts) + "]"


def _write_object(parts: list[tuple[str, str, str, str]]) -> str:
    inside = [
        f"{left}{json.dumps(key)}{right}:{left}{text}{right}" for key, left, text, right in parts
    ]
    return "{" + ",".join(inside) + "}"


documents = st.recursive(
    _scalars,
    lambda inner: (
        st.lists(st.tuples(_blanks, inner, _blanks), max_size=4).map(_write_list)
        | st.lists(
            st.tuples(_keys, _blanks, inner, _blanks), max_size=4, unique_by=lambda part: part[0]
        ).map(_write_object)
    ),
    max_leaves=12,
)


def parsed(text: str) -> Any:
    """Numbers as they are written, so that one which is written anew is found out."""
    return json.loads(text, parse_int=lambda n: ("n", n), parse_float=lambda n: ("n", n))


def places(document: Any, here: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    found = [here]
    if isinstance(document, dict):
        for key, value in document.items():
            found += places(value, (*here, key))
    elif isinstance(document, list):
        for index, value in enumerate(document):
            found += places(value, (*here, str(index)))
    return found


def pointer(steps: tuple[str, ...]) -> str:
    return "".join("/" + step.replace("~", "~0").replace("/", "~1") for step in steps)


def reference(document: Any, op: str, steps: tuple[str, ...], value: Any) -> Any:
    """What the standard says of `add`, `replace` and `remove`, on a parsed document."""
    if not steps:
        return value
    *outer, last = steps
    document = inside = copy.deepcopy(document)
    for step in outer:
        inside = inside[int(step)] if isinstance(inside, list) else inside[step]
    if isinstance(inside, dict):
        if op == "remove":
            del inside[last]
        else:
            inside[last] = value
    elif op == "add":
        inside.insert(len(inside) if last == "-" else int(last), value)
    elif op == "replace":
        inside[int(last)] = value
    else:
        del inside[int(last)]
    return document


def applied(text: str, op: str, steps: tuple[str, ...], value: str = "null") -> str:
    patch = f'[{{"op": "{op}", "path": {json.dumps(pointer(steps))}, "value": {value}}}]'
    return read_patch(patch).apply(text)


@given(documents, documents, st.data())
def test_a_patched_text_says_what_the_patched_document_says(
    text: str, value: str, data: st.DataObject
) -> None:
    document = parsed(text)
    steps = data.draw(st.sampled_from(places(document)))
    op = data.draw(st.sampled_from(["add", "replace", "remove"] if steps else ["add", "replace"]))
    expected = reference(document, op, steps, parsed(value))
    assert parsed(applied(text, op, steps, value)) == expected


@given(documents, documents, st.data())
def test_what_was_added_and_removed_again_leaves_the_text_as_it_was(
    text: str, value: str, data: st.DataObject
) -> None:
    document = parsed(text)
    containers = [
        (steps, inside)
        for steps in places(document)
        if isinstance(inside := at(document, steps), dict | list) and "new" not in inside
    ]
    if not containers:
        return
    steps, inside = data.draw(st.sampled_from(containers))
    new = "new" if isinstance(inside, dict) else str(data.draw(st.integers(0, len(inside))))
    added = applied(text, "add", (*steps, new), value)
    assert applied(added, "remove", (*steps, new)) == text


@given(documents, documents, st.data())
def test_what_was_replaced_and_put_back_leaves_the_text_as_it_was(
    text: str, value: str, data: st.DataObject
) -> None:
    steps = data.draw(st.sampled_from(places(parsed(text))))
    before = patched(text, {"op": "copy", "from": pointer(steps), "path": ""}).strip(" \t\n\r")
    changed = applied(text, "replace", steps, value)
    assert applied(changed, "replace", steps, before) == text


@given(documents, st.data())
def test_a_move_is_a_removal_and_an_addition(text: str, data: st.DataObject) -> None:
    document = parsed(text)
    source = data.draw(st.sampled_from(places(document)))
    if not source:
        return
    without = applied(text, "remove", source)
    target = data.draw(st.sampled_from(places(parsed(without))))
    if source == target or target[: len(source)] == source:
        return
    patch = [{"op": "move", "from": pointer(source), "path": pointer(target)}]
    expected = reference(parsed(without), "add", target, at(document, source))
    assert parsed(read_patch(json.dumps(patch)).apply(text)) == expected


@given(st.text(), st.text())
def test_no_text_raises_anything_else(text: str, patch: str) -> None:
    with contextlib.suppress(EditRefused):
        read_patch(patch).apply(text)


def at(document: Any, steps: tuple[str, ...]) -> Any:
    for step in steps:
        document = document[int(step)] if isinstance(document, list) else document[step]
    return document
