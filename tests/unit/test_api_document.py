"""The OpenAPI document. The page of the reference that lists every operation is made of it."""

from __future__ import annotations

import re
from typing import Any

from redrive.server.app import Application
from scripts.api_page import operations
from tests.services.pages import ROOT


def document() -> dict[str, Any]:
    return Application(loopback=True).api.openapi()


def test_every_operation_says_what_it_does_and_answers_with_a_described_document() -> None:
    names = [operation["operationId"] for operation in operations().values()]
    assert len(names) == len(set(names))
    for (path, method), operation in operations().items():
        assert operation["description"].strip(), (method, path)
        for status, answer in operation["responses"].items():
            described = status == "204" or answer.get("content")
            assert described, (method, path, status)


def test_problems_have_one_shape_everywhere() -> None:
    found = document()
    assert {"type", "title", "status", "detail", "remedy"} <= set(
        found["components"]["schemas"]["Problem"]["required"]
    )
    for (path, method), operation in operations().items():
        if path.startswith("/api/v1"):
            problem = operation["responses"]["default"]["content"]["application/problem+json"]
            assert problem["schema"]["$ref"].endswith("/Problem"), (method, path)


def test_names_in_documents_are_camel_case() -> None:
    for name, schema in document()["components"]["schemas"].items():
        for key in schema.get("properties", {}):
            assert re.fullmatch(r"[a-z][a-zA-Z0-9]*|dlq_[a-z]+", key), (name, key)


def test_every_field_of_a_letter_is_in_the_reference_and_no_other() -> None:
    text = (ROOT / "docs" / "reference" / "letter.md").read_text(encoding="utf-8")
    table = text.split("\n## ")[0]
    rows = re.findall(r"^\| (`.+?) \| ", table, re.MULTILINE)
    told = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    schemas = document()["components"]["schemas"]
    assert sorted(told) == sorted(schemas["LetterDocument"]["properties"])
    within = {"Body": "body", "Origin": "origin", "Death": "deaths", "Attempt": "replayAttempts"}
    within |= {"Edit": "edits", "Change": "history", "Header": "headers", "Metadata": "metadata"}
    for kind, name in within.items():
        (row,) = re.findall(rf"^\| `{name}` \| (.+)$", table, re.MULTILINE)
        for key in schemas[kind]["properties"].keys() - {"unreadableProperties"}:
            assert re.search(rf"\b{key}\b", row), f"{name}.{key}"
