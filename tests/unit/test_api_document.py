"""The OpenAPI document, and the page of the reference that lists every operation."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from redrive.server.app import Application

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "api.md"


def document() -> dict[str, Any]:
    return Application(loopback=True).api.openapi()


def operations() -> dict[tuple[str, str], dict[str, Any]]:
    return {
        (method.upper(), path): operation
        for path, methods in document()["paths"].items()
        for method, operation in methods.items()
    }


def test_every_operation_is_in_the_reference_with_its_role_and_no_other() -> None:
    text = PAGE.read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([A-Z]+) (/[^`]*)` \| ([a-z-]+) \| (.+) \|$", text, re.MULTILINE)
    listed = {(method, path): role for method, path, role, _ in rows}
    assert listed == {
        key: operation.get("x-role", "anybody") for key, operation in operations().items()
    }


def test_every_operation_says_what_it_does_and_answers_with_a_described_document() -> None:
    names = [operation["operationId"] for operation in operations().values()]
    assert len(names) == len(set(names))
    for (method, path), operation in operations().items():
        assert operation["description"].strip(), (method, path)
        for status, answer in operation["responses"].items():
            described = status == "204" or answer.get("content")
            assert described, (method, path, status)


def test_problems_have_one_shape_everywhere() -> None:
    found = document()
    assert {"type", "title", "status", "detail", "remedy"} <= set(
        found["components"]["schemas"]["Problem"]["required"]
    )
    for (method, path), operation in operations().items():
        if path.startswith("/api/v1"):
            problem = operation["responses"]["default"]["content"]["application/problem+json"]
            assert problem["schema"]["$ref"].endswith("/Problem"), (method, path)


def test_names_in_documents_are_camel_case() -> None:
    for name, schema in document()["components"]["schemas"].items():
        for key in schema.get("properties", {}):
            assert re.fullmatch(r"[a-z][a-zA-Z0-9]*|dlq_[a-z]+", key), (name, key)
