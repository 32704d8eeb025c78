"""Fingerprints: letters that failed for the same reason in the same place have the same one.

A fingerprint is made of the error type, the reason without what differs from message to message
(`normal_reason`), the application's frames where it failed (`frames`), and the queue.

It runs for every letter: inputs are bounded first and all that is done is linear in them. Pure and
without state but caches, so equal parts have equal fingerprints in every process.
"""

from __future__ import annotations

import re
from functools import lru_cache
from hashlib import blake2b
from typing import Final

from redrive.domain.frames import top_frames, window
from redrive.domain.normal_reason import MAX_REASON, normal_reason, template_of

__all__ = ["fingerprint", "normal_reason", "top_frames"]

MAX_KEY: Final = 400
"""Characters of a template without its shapes that tell groups apart."""
MAX_KEY_OF_CUT: Final = 150
"""Those where the reason goes on beyond what is looked at."""

_SEPARATORS: Final = re.compile(r"[,;|]+")
_COUNTED: Final = re.compile(r"<n> (?:[a-z]++ )?[a-z]++(?<=[sy])(?!\w)")
"""A number and what is counted, in singular or plural."""
_MARK: Final = "<(?:n|id|time|addr|value|email|path)>"
_MARKS: Final = re.compile(rf"{_MARK}(?>(?:(?:[][().,:;/_+|-]{{0,2}}|and|or){_MARK})*)")


def fingerprint(*, error_type: str, reason: str, stack: str | None, queue: str) -> str:
    """Sixteen hexadecimal digits that name the group of such failures."""
    return _fingerprint(error_type, reason[:MAX_REASON], stack and window(stack), queue)


# Bounded by what it keeps alive: at most 18 KB of text an entry.
@lru_cache(maxsize=1024)
def _fingerprint(error_type: str, reason: str, stack: str | None, queue: str) -> str:
    parts = (error_type, queue, _key(reason), *top_frames(stack))
    text = "\0".join(parts).encode(errors="surrogatepass")
    return blake2b(text, digest_size=8).hexdigest()


def _key(reason: str) -> str:
    """What of a reason tells groups apart.

    Of a list what its items have in common, because it has as many as the message; and only the
    beginning, less of it where the reason was cut: where that happened is chance.
    """
    key, is_cut = _shapeless(template_of(reason)), len(reason) >= MAX_REASON
    if "," in key or ";" in key or "|" in key:
        items = _SEPARATORS.split(key)
        key = ",".join(dict.fromkeys(items[:-1] if is_cut else items))
    return key[: MAX_KEY_OF_CUT if is_cut else MAX_KEY]


def _shapeless(template: str) -> str:
    """A template in which all marks are alike: which one a value got depends on its form."""
    if "<n> " in template:
        template = _COUNTED.sub(_singular, template)
    for shape in " \"'`{}":
        template = template.replace(shape, "")
    return _MARKS.sub("<>", template) if "<" in template else template


def _singular(match: re.Match[str]) -> str:
    # Not a word, only alike: `entry` and `entries` both end as `entr`.
    return match[0].removesuffix("s").removesuffix("y").removesuffix("ie")
