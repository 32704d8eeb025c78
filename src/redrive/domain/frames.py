"""The place of a failure: the innermost frames of the application in a stack.

Known are the stacks of Java, .NET and Node (`at …`), Python, Go, PHP, Ruby, Rust and Elixir; of
another form the files it names. What another build or another call changes is left out: lines,
addresses, folders of a deployment, numbers of lambdas and proxies, frames of libraries.

A stack is read line by line, from the innermost frame on, and only until enough frames are found;
only `MAX_STACK` characters of it and `MAX_LINE` of a line are looked at.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import pairwise
from typing import Final

from redrive.domain.libraries import (
    ELIXIR_LIBRARIES,
    is_go_library,
    is_library,
    is_library_path,
    is_rust_library,
)

MAX_STACK: Final = 16 * 1024
"""Characters of a stack that are looked at."""
MAX_LINE: Final = 500
"""Characters of a line that are looked at."""
MAX_FRAMES: Final = 3
"""Frames that make a place: more would tell callers apart, fewer would mix shared functions."""

_Frame = tuple[str, bool]
"""A frame, and whether it is the application's; an empty one is left out."""

_CAUSED_BY: Final = "\nCaused by: "
_INNER_ENDS: Final = "--- End of inner exception stack trace ---"
_NODE_CAUSE: Final = "[cause]: "
_TRACEBACK: Final = "Traceback (most recent call last)"
_PYTHON: Final = re.compile(r'File "([^"]*+)", line \d++, in (.++)')
_ALIAS: Final = re.compile(r" \[as [^\]]*\]|^new |^async |^Object\.|<anonymous>")
_OTHER: Final = re.compile(
    r"""(?<![^\s:()'"])([^\s:()'"]++)(?:(?<=\.[a-z])|(?<=\.[a-z]{2})|(?<=\.[a-z]{3})|(?<=\.[a-z]{4}))"""
    r"""(?::\d++|\(\d++\))(?::\d++)?(?::| |$)(.*)"""
)
"""A file and a line, and after them the function: PHP, Ruby, Elixir, and forms not known."""
_RUST: Final = re.compile(r"\s*\d+:\s+(?:0x[0-9a-f]+ - )?(\S.*)")
_RUST_NUMBERED: Final = re.compile(
    r"::h[0-9a-f]{16}$|(?:::)?\{\{closure\}\}|(?:::)?\{closure[^}]*\}"
)
_ERLANG: Final = re.compile(r"""\{([a-z]\w*),\s*('[^']*'|\w+),[^{}]*\[\{file,\s*"([^"]*)"\}""")
_HIDDEN_CLASS: Final = re.compile(r"/0x[0-9a-f]+")
_GENERATED: Final = re.compile(
    r"\$\$|\$Proxy\d|Generated(?:Method|Constructor)Accessor|^lambda_method|"
    r"\$(?:ByteBuddy|HibernateProxy|Mockito\w*)\$"
)
"""Methods that a runtime or a framework makes: they come and go between runs."""
_CLOSURE: Final = re.compile(r"<+(\w*)>[^.]*")
_NUMBERED: Final = re.compile(
    r"@\d+(?:-\d+)?|\$\d+|`\d+|\[[^\]]*\]?|\.(?:func|gowrap|deferwrap)\d+(?:\.\d+)*|-fm$"
    r"|(?<=[_$.-])(?=[a-f]*\d)[0-9a-f]{6,}|\d{2,}"
)
_HASH_OF_BUILD: Final = re.compile(r"[._-](?=[A-Za-z]*\d)[0-9A-Za-z]{6,}(?=\.)")
_ROOTS: Final = frozenset(("app", "src", "dist", "build", "current", "code", "service", "task"))
"""Folders that only say where an application was put."""


def top_frames(stack: str | None) -> tuple[str, ...]:
    """The innermost frames of the application, without lines, addresses and numbers of lambdas.

    Of chained causes the root cause's, because it is what failed; where that one lies in libraries
    alone, those of the exception around it. A stack without a frame of the application has its
    innermost ones.
    """
    if not stack:
        return ()
    text = window(stack)
    found: tuple[str, ...] = ()
    if "stack backtrace:" not in text[:1_000] and ("\tat " in text or "   at " in text):
        found = _innermost(map(_at_frames, _parts(text)))
    if not found and 'File "' in text:
        found = _innermost((_python_frames(text),))
    if not found and ".go:" in text:
        found = _innermost((_go_frames(text),))
    if not found and "stack backtrace:" in text:
        found = _innermost((_rust_frames(text),))
    if not found and "{file," in text:
        found = _innermost((_erlang_frames(text),))
    return found or _innermost((_other_frames(text),))


def window(stack: str) -> str:
    """The part of a long stack in which the innermost frames are."""
    if len(stack) <= MAX_STACK:
        return stack
    if _TRACEBACK in stack[:MAX_STACK]:
        return stack[-MAX_STACK:]
    half, cause = MAX_STACK // 2, stack.rfind(_CAUSED_BY)
    return stack[:MAX_STACK] if cause < half else stack[:half] + stack[cause : cause + half]


def _parts(text: str) -> list[str]:
    """The stacks of chained exceptions, the root cause first."""
    if _CAUSED_BY in text:
        return text.split(_CAUSED_BY)[::-1]
    if _INNER_ENDS in text:
        return text.split(_INNER_ENDS)
    return text.split(_NODE_CAUSE)[::-1] if _NODE_CAUSE in text else [text]


def _innermost(blocks: Iterable[Iterable[_Frame]]) -> tuple[str, ...]:
    """The first frames of the application in the first block that has one."""
    others: list[str] = []
    for block in blocks:
        found: list[str] = []
        for frame, is_application in block:
            if is_application:
                if frame not in found:  # of a recursion once, however deep it was
                    found.append(frame)
                if len(found) == MAX_FRAMES:
                    break
            elif frame and len(others) < MAX_FRAMES:
                others.append(frame)
        if found:
            return tuple(found)
    return tuple(map(_unnumbered, others))


def _python_frames(text: str) -> Iterator[_Frame]:
    """Innermost last, and an exception raised from another comes after it."""
    for line in reversed(text.split("\n")):
        # An exception group draws its branches before its lines.
        bare = line[:MAX_LINE].strip(" \t\r|+")
        if bare.startswith('File "') and (match := _PYTHON.match(bare)):
            yield _file_frame(match[1], match[2])


def _go_frames(text: str) -> Iterator[_Frame]:
    for call, place in pairwise(text.split("\n")):
        if ".go:" in place and place[:1].isspace() and not call.startswith("created by "):
            name = call[:MAX_LINE].rstrip()
            if name.endswith(")"):
                name = name[: name.rindex("(")] if "(" in name else name
            path = place[:MAX_LINE].strip().partition(".go:")[0]
            if is_go_library(name) or is_library_path(path):
                yield name, False
            else:
                yield _unnumbered(name), True


def _at_frames(text: str) -> Iterator[_Frame]:
    for line in text.split("\n"):
        name = line.partition("(")[0].lstrip()
        if name[:3] == "at ":
            # Only of Node does a space come before the parenthesis, or a line's number without one.
            is_node = name[-1] == " " or ":" in name
            yield _node_frame(line) if is_node else _class_frame(name[3:MAX_LINE])


# Methods and files repeat from letter to letter, and there are only so many of them.
@lru_cache(maxsize=4096)
def _class_frame(name: str) -> _Frame:
    """A frame of Java or .NET by its class and method."""
    if "/" in name:
        # Before a slash stands a module, after it the address of a hidden class.
        name = _HIDDEN_CLASS.sub("", name).rpartition("/")[2]
    if " " in name or _GENERATED.search(name):
        return "", False
    if is_library(name):
        return name, False
    if "<" in name:
        name = _CLOSURE.sub(r"\1", name).removesuffix(".MoveNext").replace("..", ".")
    return _unnumbered(name.replace("lambda$", "")), True


def _node_frame(line: str) -> _Frame:
    """A frame of Node, or one of Rust, which has no function."""
    place, *numbers = line[:MAX_LINE].strip(" \t\r)").removeprefix("at ").rsplit(":", 2)
    if len(numbers) != 2 or not numbers[0].isdigit():
        return "", False
    return _script_frame(place)


@lru_cache(maxsize=4096)
def _script_frame(place: str) -> _Frame:
    if place.endswith("<anonymous>"):
        return "", False
    call, paren, path = place.rpartition(" (")
    path = path.removeprefix("async ").rpartition("://")[2]
    return _file_frame(path, _ALIAS.sub("", call) if paren else "")


def _rust_frames(text: str) -> Iterator[_Frame]:
    for line in text.partition("stack backtrace:")[2].split("\n"):
        if match := _RUST.match(line[:MAX_LINE]):
            name = _RUST_NUMBERED.sub("", match[1].rstrip())
            yield name, not is_rust_library(name)


def _erlang_frames(text: str) -> Iterator[_Frame]:
    """Files of Erlang itself have no folder."""
    for module, function, path in _ERLANG.findall(text):
        yield f"{module}:{function}", "/" in path


def _other_frames(text: str) -> Iterator[_Frame]:
    for line in text.split("\n"):
        bare = line[:MAX_LINE].strip()
        if match := _OTHER.search(bare):
            call = match[2].rpartition(" in ")[2].strip(" `'").removeprefix("in ").strip("`'")
            call = _unnumbered(call.partition("(")[0])
            frame, is_application = _file_frame(match[1], "" if " " in call else call)
            yield frame, is_application and not bare.startswith(ELIXIR_LIBRARIES)


@lru_cache(maxsize=4096)
def _file_frame(path: str, call: str) -> _Frame:
    """A function and its file; of the path only the end, which no deployment changes."""
    path = path.partition("?")[0].replace("\\", "/")
    folder, _, name = path.rpartition("/")
    if name.startswith(("__init__.", "index.", "mod.rs")):
        parent = folder.rpartition("/")[2]
        if parent not in _ROOTS and parent.isidentifier() and _unnumbered(parent) == parent:
            name = f"{parent}/{name}"
    if "-" in name or "_" in name or name.count(".") > 1:
        name = _HASH_OF_BUILD.sub("", name)
    return f"{name}:{call}" if call else name, not is_library_path(path)


def _unnumbered(name: str) -> str:
    """A name without what the compiler or a loop numbers."""
    return name if name.isidentifier() else _NUMBERED.sub("", name)
