"""The template of a reason: what is left when what differs from message to message is taken out.

What differs is ids, numbers, times, addresses, values; what stays is what tells kinds of failures
apart: error codes, HTTP statuses, SQLSTATEs, and names of columns, fields, classes, tasks.

It runs for every letter: only the beginning of a reason is looked at, what it quotes of a message
is taken out where a cheap look says that there may be some, and the rest is read once, token by
token (`reason_reading`). Pure: equal reasons have equal templates in every process.
"""

from __future__ import annotations

import re
from typing import Final

from redrive.domain.reason_reading import template

MAX_REASON: Final = 2_000
"""Characters of a reason that are looked at."""
MAX_TEMPLATE: Final = 500
"""Characters of a group's title."""
MAX_LINES: Final = 5
"""Lines of a reason that matter; further ones are details."""

_FRAME_LINE: Final = re.compile(
    r'\s*(?:at \S|File "|Traceback \(|goroutine \d|\.\.\. \d+ more|#\d+ |from /|'
    r"[Ss]tack (?:back)?trace:|\S+\.rb:\d+:in |\(\w+ [\d.]+\) \S+:\d+: )"
)
_DOCUMENT: Final = re.compile(
    r"""["'`](?=[{\[]{1,2}["'])[^\n]*?(?:[}\]]["'`]|\.\.\.|…|\[truncated|$)"""
    r"""|\b(?P<label>(?:request|payload|input|params|parameters|args|kwargs|record|document|event|"""
    r"""command|message)\W{1,3}(?=[{\[]))[^\n]*[}\]]""",
    re.MULTILINE,
)
"""A message in the reason: JSON in quotes or after a label."""
_ERROR: Final = re.compile("Error|Exception|Violation|Failure|Status|Response|Result")
_OBJECT: Final = re.compile(r"(?:\b[A-Z]\w*(?:\{|[(\[](?=\w+=)))|\{")
"""What an object begins with: `{"id": 1}`, `%{id: 1}`, `Order(id=1)`, `Order { id: 1 }`."""
_BRACKETS: Final = re.compile(r"[{}()\[\]\n]")
_DEPTHS: Final = {"{": 1, "(": 1, "[": 1, "}": -1, ")": -1, "]": -1}
_PAIR: Final = re.compile(r"""\w["']?(?::|=>?| =>) ?[^\s=]""")
_TELLING_PAIR: Final = re.compile(
    r"""\b(?:error\w*|message|msg|reason|code|kind|detail|exception|\w+Message)["']? ?(?::|=)"""
    r"""|(?::|=>) ?\[\{?["']""",
    re.IGNORECASE,
)
"""What an error says of itself: a telling key, or a list of texts for a field."""
_INSPECTED: Final = re.compile(r"(#<[A-Z][\w:]*)[ :][^\n<>]*>")
"""An object as Ruby shows it."""
_ROW: Final = re.compile(
    r"(row contains |value is |values |VALUES )\([^\n]*?(?:\)(?=[\s.,;]|\Z)|$)", re.MULTILINE
)
_UNEXPECTED: Final = re.compile(r"(Unexpected token|No enum constant [\w$.]+(?=\.))[ .]\S{1,60}")
_ELEMENT: Final = re.compile(r">[^<>\n]++</")
_PLACEHOLDERS: Final = re.compile(r"\?(?>(?:, ?\?)+)")


def normal_reason(reason: str) -> str:
    """The reason without what differs from message to message: the title of its group."""
    text = template_of(reason)
    return text if len(text) <= MAX_TEMPLATE else text[: MAX_TEMPLATE - 1] + "…"


def template_of(reason: str) -> str:
    """All of the template: where a title ends depends on the marks in it."""
    text = template(_without_documents(_telling_lines(reason[:MAX_REASON])))
    if "\n" in text:
        text = " ".join(list(dict.fromkeys(text.split("\n")))[:MAX_LINES])
    return " ".join(text.split())


def _telling_lines(text: str) -> str:
    """The first lines, up to where a stack begins; of a traceback, the error at its end."""
    if "\n" not in text:
        return text.strip()
    lines = [line for line in text.splitlines() if line.strip()]
    if lines and lines[0].startswith("Traceback ("):
        errors = [line for line in lines[1:] if not line[0].isspace() and line[-1] != ":"]
        return errors[-1] if errors else lines[0]
    telling: list[str] = []
    for line in lines[: 4 * MAX_LINES]:
        if telling and _FRAME_LINE.match(line):
            break
        telling.append(line.strip())
    return "\n".join(telling)


def _without_documents(text: str) -> str:
    """The text without what is quoted of a message: it has as many words as the message."""
    if "?," in text:
        text = _PLACEHOLDERS.sub("?", text)
    if '\\"' in text:
        text = text.replace('\\"', '"')
    if "{" in text or "[" in text or "=" in text:
        text = _without_objects(_DOCUMENT.sub(_document, text))
    if "#<" in text:
        text = _INSPECTED.sub(r"\1<value>>", text)
    if " (" in text:
        text = _ROW.sub(r"\1<value>", text)
    if "</" in text:
        text = _ELEMENT.sub("><value></", text)
    if "Unexpected token " in text or "No enum constant " in text:
        text = _UNEXPECTED.sub(r"\1 <value>", text)
    return text


def _without_objects(text: str) -> str:
    """The text without objects, in whatever notation, unless they tell what failed."""
    kept: list[str] = []
    end = 0
    while match := _OBJECT.search(text, end):
        opened = match.end() - 1
        kept.append(text[end:opened])
        end = _closing(text, opened)
        inner = text[opened:end]
        tells = opened == 0 or not _PAIR.search(inner) or _TELLING_PAIR.search(inner)
        kept.append(inner if tells or _ERROR.search(match[0]) else f"{match[0][-1]}<value>")
    kept.append(text[end:])
    return "".join(kept)


def _closing(text: str, opened: int) -> int:
    """Where what a bracket opens ends; a line's end if nothing closes it."""
    depth = 0
    for match in _BRACKETS.finditer(text, opened):
        depth += _DEPTHS.get(match[0], -depth)
        if depth <= 0:
            return match.end() if match[0] != "\n" else match.start()
    return len(text)


def _document(match: re.Match[str]) -> str:
    return f"{match['label'] or ''}<value>"
