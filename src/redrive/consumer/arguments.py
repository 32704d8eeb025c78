"""How a handler wants its message: as a `Message`, as a typed body, or both.

    async def settle(message): ...                              the Message
    async def settle(settlement: Settlement): ...               a dataclass, a pydantic model, …
    async def settle(settlement: Settlement, message: Message)  both, in any order

Types are whatever pydantic understands: dataclasses, models, TypedDicts, `list[Order]`, `dict`.
`bytes` is the raw body, `str` its text. A content encoding is undone first, but for `bytes`. A body
that does not fit is dead: no retry would help.
"""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable
from typing import Any

from pydantic import PydanticSchemaGenerationError, PydanticUserError, TypeAdapter, ValidationError

from redrive.consumer.message import Message, misfit
from redrive.errors import SettingsError

Arguments = Callable[[Message], tuple[Any, ...]]
_MOST_PROBLEMS = 5


def arguments_of(handler: Callable[..., Any]) -> Arguments | None:
    """What makes a handler's arguments of a message; None if it takes the `Message` alone."""
    _refuse_class(handler)
    _refuse_generator(handler)
    parameters = _parameters(handler)
    hints = _hints(handler)
    readers = [_reader(handler, name, hints.get(name, Message)) for name in parameters]
    if len(readers) == 1 and readers[0] is _whole:
        return None
    if sum(reader is not _whole for reader in readers) > 1:
        raise _refused(handler, "takes more than one body")
    if sum(reader is _whole for reader in readers) > 1:
        raise _refused(handler, f"takes the message more than once: {', '.join(parameters)}")
    return lambda message: tuple([reader(message) for reader in readers])


def _refuse_class(handler: Callable[..., Any]) -> None:
    """Calling one makes an object, and no more."""
    if isinstance(handler, type):
        raise _refused(
            handler, "is a class, which handles nothing when it is called: make it an object"
        )


def _refuse_generator(handler: Callable[..., Any]) -> None:
    """Calling one runs nothing of it: every message would be acked unhandled."""
    function = handler
    while isinstance(function, functools.partial):
        function = function.func
    for each in (function, getattr(function, "__call__", None)):  # noqa: B004
        if inspect.isgeneratorfunction(each) or inspect.isasyncgenfunction(each):
            raise _refused(
                handler, "is a generator, which runs nothing when it is called: it has a 'yield'"
            )


def _parameters(handler: Callable[..., Any]) -> list[str]:
    kinds = inspect.Parameter
    needed: list[str] = []
    for parameter in inspect.signature(handler).parameters.values():
        if parameter.kind in (kinds.VAR_POSITIONAL, kinds.VAR_KEYWORD):
            continue
        if parameter.kind is kinds.KEYWORD_ONLY:
            if parameter.default is kinds.empty:
                raise _refused(handler, f"needs {parameter.name!r} by name")
        elif parameter.default is kinds.empty:
            needed.append(parameter.name)
    if not needed:
        raise _refused(handler, "takes no message")
    return needed


def _hints(handler: Callable[..., Any]) -> dict[str, Any]:
    function = handler if inspect.isroutine(handler) else getattr(handler, "__call__", handler)  # noqa: B004
    function = inspect.unwrap(function)
    try:
        return typing.get_type_hints(function, include_extras=True)
    except NameError as error:
        # One that is imported for type checkers only need not be of a parameter that matters.
        found: dict[str, Any] = {}
        for name in _parameters(handler):
            text = inspect.get_annotations(function).get(name, "Message")
            if text not in ("Message", "redrive.Message"):
                raise _refused(
                    handler, f"has an annotation that cannot be resolved: {error}"
                ) from error
            found[name] = Message
        return found


def _whole(message: Message) -> Message:
    return message


def _reader(handler: Callable[..., Any], name: str, hint: Any) -> Callable[[Message], Any]:
    if hint is Message or hint is Any:
        return _whole
    if hint is bytes:
        return lambda message: message.body
    if hint is str:
        return _text
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(hint)
    except (PydanticSchemaGenerationError, PydanticUserError) as error:
        raise _refused(handler, f"takes {name!r} as {hint!r}, which cannot be read") from error
    expected = getattr(hint, "__name__", str(hint))

    def read(message: Message) -> Any:
        try:
            return adapter.validate_json(message.content)
        except ValidationError as error:
            reason = f"the body does not fit {expected}: {_problems(error)}"
            raise misfit(message, reason) from error

    return read


def _text(message: Message) -> str:
    try:
        return message.content.decode()
    except UnicodeDecodeError as error:
        raise misfit(message, f"the body is not text: {error}") from error


def _problems(error: ValidationError) -> str:
    """What is wrong and where, without the values: they may be secret."""
    found = [
        ": ".join(filter(None, (".".join(map(str, each["loc"])), each["msg"])))
        for each in error.errors(include_url=False, include_context=False, include_input=False)
    ]
    more = f" (and {len(found) - _MOST_PROBLEMS} more)" if len(found) > _MOST_PROBLEMS else ""
    return "; ".join(found[:_MOST_PROBLEMS]) + more


def _refused(handler: Callable[..., Any], why: str) -> SettingsError:
    name = getattr(handler, "__qualname__", repr(handler))
    return SettingsError(
        f"handler {name} {why}",
        remedy="a handler takes the message, a typed body, or both",
    )
