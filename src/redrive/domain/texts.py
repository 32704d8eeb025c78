"""Texts that can be stored anywhere: no NUL, no half of a surrogate pair, no more than fits."""

from __future__ import annotations

import re
from typing import Final

_UNSTORABLE: Final = re.compile("[\x00\ud800-\udfff]")
_REPLACEMENT: Final = "\ufffd"
_CUT: Final = "…"


def storable(text: str, length: int) -> str:
    """The text with a replacement for what cannot be stored, cut to `length` characters."""
    if len(text) > length:
        text = text[: length - 1] + _CUT
    if text.isascii() and "\x00" not in text:
        return text
    return _UNSTORABLE.sub(_REPLACEMENT, text)
