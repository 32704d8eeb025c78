"""docs/reference/api.md: every operation, from the routes themselves; what stands above is text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from redrive.server.app import Application

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "api.md"
_BEGINS: Final = "## Operations\n"
_TITLES: Final = {
    "letters": "Letters",
    "groups": "Groups",
    "replays": "Replays",
    "stats": "Numbers",
    "alerts": "Alerts",
    "breakers": "Breakers",
    "policies": "Policies",
    "topology": "Topology",
    "audit": "Audit",
    "session": "Session",
    "access": "Users and tokens",
    "events": "Live events",
    "health": "Health",
    "metrics": "Health",
}


def operations() -> dict[tuple[str, str], dict[str, Any]]:
    """Every operation of the API, by path and method."""
    return {
        (path, method.upper()): operation
        for path, methods in Application(loopback=True).api.openapi()["paths"].items()
        for method, operation in methods.items()
    }


def page() -> str:
    """The page with the operations as they are now."""
    text = PAGE.read_text(encoding="utf-8").partition(_BEGINS)[0]
    return f"{text}{_BEGINS}{''.join(_sections())}"


def _sections() -> Iterator[str]:
    found = sorted(operations().items())
    for title in dict.fromkeys(_TITLES.values()):
        yield f"\n### {title}\n\n| operation | role | |\n|---|---|---|\n"
        for (path, method), operation in found:
            (tag,) = operation["tags"]
            if _TITLES[tag] == title:
                yield f"| `{method} {path}` | {_role(operation)} | {_first(operation)} |\n"


def _role(operation: dict[str, Any]) -> str:
    return str(operation.get("x-role", "anybody"))


def _first(operation: dict[str, Any]) -> str:
    """The first paragraph of what it says of itself."""
    return " ".join(operation["description"].strip().partition("\n\n")[0].split())
