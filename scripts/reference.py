"""`python -m scripts.reference` writes the pages of docs/reference that are made of code:
consumer.md from the SDK's docstrings, metrics.md and events.md from what is measured and logged;
and, in pages that people write, how commands are called, the defaults of settings and the
operations of the API."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import redrive
from redrive import testing
from redrive.consumer import with_aio_pika, with_pika
from scripts import api_page, commands_page, events_page, metrics_page, settings_page

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "consumer.md"
_HEAD = """# The consumer SDK

Generated from the docstrings by `python -m scripts.reference`; a test checks that it is current.
[The tutorial](../tutorial/first-handler.md) shows it at work,
[handlers that fail well](../explanation/handlers.md) says what it promises and why.

```python
from redrive import Consumer, DeadLetter, Message, Queue, RetryAfter
```
"""


def page() -> str:
    """The whole page."""
    parts = [_HEAD]
    for each in (redrive.Consumer, redrive.Message, redrive.Queue):
        parts += _class(each)
    for signal in (redrive.RetryAfter, redrive.DeadLetter):
        parts += [f"## {_called(signal.__name__, signal)}", _text(signal)]
    parts += ["## redrive.testing", _text(testing)]
    parts += _class(testing.Handling, level=3, title="the fixture `handled`", call="handled")
    parts += _class(testing.Handled, level=3, made_by_us=True)
    for function in (testing.a_message, testing.handle):
        parts += [f"### {_called(function.__name__, function)}", _text(function)]
    for module in (with_pika, with_aio_pika):
        parts += [f"## {module.__name__}", _text(module)]
        parts += [f"### {_called('failed', module.failed)}", _text(module.failed)]
    return "\n".join(f"{part.strip()}\n" for part in parts)


def _class(
    kind: type, *, level: int = 2, title: str = "", call: str = "", made_by_us: bool = False
) -> Iterator[str]:
    name = title or kind.__name__
    made = kind is redrive.Message or made_by_us or bool(title)
    yield f"{'#' * level} {name}" if made else f"{'#' * level} {_called(name, kind)}"
    yield _text(kind)
    if call:
        yield f"{'#' * (level + 1)} {_called(call, kind.__call__)}"
        yield _text(kind.__call__)
    short: list[str] = []
    for attribute, member in vars(kind).items():
        if attribute.startswith("_"):
            continue
        if isinstance(member, property) and member.__doc__:
            short.append(f"- `{attribute}`: {_line(member.__doc__)}")
        elif inspect.isfunction(member):
            word = "await " if inspect.iscoroutinefunction(member) else ""
            yield f"{'#' * (level + 1)} {_called(attribute, member, word)}"
            yield _text(member)
    if short:
        yield "\n".join(short)


def _called(name: str, function: Callable[..., Any], word: str = "") -> str:
    """How it is called: parameters with their defaults, without types."""
    shown: list[str] = []
    starred = False
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name in ("self", "settings"):
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            starred = True
            shown.append("*")
        text = parameter.name
        if parameter.kind is parameter.VAR_KEYWORD:
            text = f"**{text}"
        elif parameter.default is not parameter.empty:
            text += f"={_default(parameter.default)}"
        shown.append(text)
    return f"`{word}{name}({', '.join(shown)})`"


def _default(value: Any) -> str:
    if isinstance(value, (str, int, bytes, type(None))):
        return repr(value)
    text = str(value)
    return "{}" if "factory" in text else repr(text.removeprefix("0:").replace("05:00", "5m"))


def _text(documented: Any) -> str:
    return inspect.getdoc(documented) or ""


def _line(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    for other in (metrics_page, events_page, commands_page, settings_page, api_page):
        other.PAGE.write_text(other.page(), encoding="utf-8")
