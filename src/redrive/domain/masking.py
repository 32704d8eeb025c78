"""Passwords out of what people get to see.

Guarantees: no password of a URL, or of a `password=` parameter, is left in what these functions
return, also when the URL is written wrongly (reserved characters in the password, no scheme, no
host). Where it is unclear what is password and what is not, more is hidden rather than less.
"""

from __future__ import annotations

import re

MASK = "****"

_SCHEME = r"[a-z][a-z0-9+.-]*:/+"
# A list of URLs is cut only where a new scheme begins, because a password may hold a comma.
_NEXT_URL = re.compile(rf",(?=\s*{_SCHEME})", re.IGNORECASE)
# The scheme is taken where there is one, or `amqp` of `amqp://user@host` would be taken for the
# user. (Not by a possessive `?+`, which Python 3.11.2 has wrong.)
# Greedy up to the last `@`: an unescaped `@`, `/` or `?` of a password stays on the hidden side.
_USER_INFO = re.compile(
    rf"^(\s*(?:{_SCHEME}|(?!\s*{_SCHEME}))[^:]*):.*@", re.IGNORECASE | re.DOTALL
)
# `amqp://user:password`, the host forgotten: what stands where a port should, and is no number.
_NO_PORT = re.compile(
    rf"^(\s*{_SCHEME}[^:@/?#\[]*):(?!\d*(?:[,/?#]|$)).*", re.IGNORECASE | re.DOTALL
)
# Misspelt ones too: `pasword`, `passwrod`.
_PARAMETER = re.compile(
    r"((?:pas+w\w{0,20}|pwd|pas+phrase|secret|token|api_?key)\s*=\s*)(?:'[^']*'|[^&\s]+)",
    re.IGNORECASE,
)
_HIDDEN_USER_INFO = rf"\1:{MASK}@"
_HIDDEN_AFTER_COLON = rf"\1:{MASK}"
_HIDDEN_PARAMETER = rf"\1{MASK}"
_URL_IN_TEXT = re.compile(r"[a-z][a-z0-9+.-]*://[^\s'\"]+", re.IGNORECASE)


def mask_url(text: str) -> str:
    """`text` is one URL or several with commas between: the same, with its passwords masked."""
    if "," not in text:
        return _mask_one(text)
    return ",".join(_mask_one(url) for url in _NEXT_URL.split(text))


def mask_text(text: str) -> str:
    """`text` is prose that may hold URLs: the same, with their passwords masked."""
    # Cheap looks first: nearly all has nothing of this, and a log has ten texts in a line.
    if "://" in text:
        text = _URL_IN_TEXT.sub(_mask_found, text)
    return _mask_parameters(text)


def _mask_found(match: re.Match[str]) -> str:
    return mask_url(match[0])


def _mask_one(url: str) -> str:
    masked, found = url, 0
    if "@" in url:
        masked, found = _USER_INFO.subn(_HIDDEN_USER_INFO, url)
    if not found and url.count(":") > 1:
        masked = _NO_PORT.sub(_HIDDEN_AFTER_COLON, url)
    return _mask_parameters(masked)


def _mask_parameters(text: str) -> str:
    return _PARAMETER.sub(_HIDDEN_PARAMETER, text) if "=" in text else text
