"""Reads a reason token by token and puts marks where its values are.

Free text does not say what is a value and what a name or a code, so these are rules of thumb: the
words around a token decide (`status 503`, `column "email"`), else its form (`ORA-00001`,
`customer_id`, `8f14e45f`). A plain word costs no more than a look.
"""

from __future__ import annotations

import re
from typing import Final

from redrive.domain import reason_tokens
from redrive.domain.reason_tokens import HUMP, QUOTES, TOKEN, has_digit
from redrive.domain.reason_words import (
    ANSWER_WORDS,
    BEFORE_NUMBERS,
    CODE_WORDS,
    NAME_WORDS,
    NO_CODE,
    SCHEMA_WORDS,
    STATUS_WORDS,
    TEXT_KEYS,
    UNITS,
    UNKNOWN_WORDS,
    VALUE_WORDS,
    is_telling,
)

_IDENTIFIER: Final = re.compile(r"(?:[^\W\d]|\$)[\w.$:<>\[\]()/*-]*")
_POSITION: Final = re.compile(r"\[\d+\]|\.\d+(?!\w)")
_ONE_OF_MANY: Final = re.compile(
    r"(?<=[_-])\d{2,}(?![A-Za-z])|(?:19|20)\d\d_?\d\d(?:_?\d\d)?(?!\w)"
)
"""What numbers one of many alike: a tenant's schema, a month's partition."""
_LOCATION: Final = re.compile(r"/|[A-Za-z]:\\|\\\\|\w+://|(?:application|text|image|audio|video)/")
_NO_NAME: Final = re.compile(r"[-@/]")
_FILE: Final = re.compile(r"/\w|[A-Za-z]:\\|\\\\\w")
_NAMED_AFTER: Final = re.compile(
    r",? (?:is (?:a )?(?:required|missing|undefined|mandatory)|must|should|cannot|can't|may not|"
    r"has no|object|field|column|property|parameter|argument|attribute|header|is not "
    r"(?:defined|allowed|a function|iterable|supported)|in (?:table|class|type|schema|field list))"
)
_VALUE_AFTER: Final = re.compile(
    r"\.{0,3} is (?:not (?:a|an|of|one|valid|in)\b|an? invalid|invalid)"
)
_SHORT_CODE: Final = re.compile(r"-?\d{1,6}|[0-9A-Z]{5}|[A-Z]{1,5}[-_]?\d{1,6}|0x[0-9A-Fa-f]{1,8}")
_LEADING_CODE: Final = re.compile(
    r"(?!ORD|INV|SKU|CUST|USR|USER|ID|REF|TXN|JOB|TASK|REQ|MSG|BATCH|SH|PO|SO|RMA|CASE|TICKET|INC|"
    r"ITEM|PROD|ACC|DOC|PKG|LOT|WH|BIN|PICK|EVT|EVENT)[A-Z]{3,10}[-_]?\d{3,4}"
)
_STATUS_PHRASE: Final = re.compile(
    r"[ :(\-]{1,3}(?:Bad Request|Unauthorized|Payment Required|Forbidden|Not Found|Method Not"
    r"|Not Acc|Request Timeout|Conflict|Gone|Precondition|Payload Too|Unsupported Media"
    r"|Unprocessable|Locked|Too Many Requests|Internal Server|Not Implemented|Bad Gateway"
    r"|Service (?:Temp|Unav)|Gateway Time|Moved|Client Error|Server Error"
    r"|(?:response|error|status)\b)",
    re.IGNORECASE,
)
_STATUS_LINE: Final = re.compile(r"[345]\d\d [A-Z]")
_REPLY: Final = re.compile(r"[ -](?:[245]\.\d{1,3}\.\d{1,3} |[A-Z<])")
"""What follows the code with which the reply of a server begins: `550 5.1.1 No such user`."""
_COUNTS: Final = re.compile(
    r" (?!(?:from|for|on|after|while|when|at|in|to|by|with|instead|error)\b)(?:[a-z]+ )?[a-z]+s\b"
    r"| (?:out )?of\b"
)
"""What follows a number that counts, unlike a status: `with 512 rows`."""
_ABOUT_HTTP: Final = re.compile(
    r"http|status|Response|\b(?:GET|POST|PUT|PATCH|DELETE|API|url|URL|upstream|gateway|endpoint|server)\b"
)
_BETWEEN_WORDS: Final = frozenset(" :=#([{'\"`/-,")
_QUOTED: Final = '"'
"""What was said where a value was quoted."""
_LITERALS: Final = frozenset(("true", "false", "null", "None", "True", "False", "nil"))


def template(text: str) -> str:
    """The text with marks instead of its values."""
    return _Reading(text).template()


class _Reading:
    """One walk over the tokens of a text, which knows the words before the token it is at."""

    __slots__ = ("at", "earlier", "field", "is_marked", "out", "said", "text", "tokens")

    def __init__(self, text: str, said: str = "") -> None:
        self.text = text
        self.tokens: list[str] = TOKEN.findall(text)
        self.at = 0
        self.out: list[str] = []
        self.said = said
        """The last words, or what stands in their place; what may stand between is skipped."""
        self.earlier = ""
        """What was said before that."""
        self.field = ""
        """The key of JSON whose value comes next."""
        self.is_marked = False
        """Whether a value was the last thing but spaces."""

    def template(self) -> str:
        for at, piece in enumerate(self.tokens):
            if piece == " ":
                self.out.append(piece)
                continue
            self.at = at
            first = piece[0]
            if first.isdigit():
                self._read_number(piece)
            elif first.isalpha():
                if piece.isalpha() or piece.replace(" ", "").isalpha():
                    self._read_words(piece)
                elif piece[-1] == "'":
                    self._read_quoted(piece)
                else:
                    self._read_name(piece)
            elif len(piece) == 1:
                self._read_sign(piece)
            elif first in QUOTES:
                self._read_quoted(piece)
            elif first == "=":
                self._read_assigned(piece)
            elif first in "+-\u2212":
                self._read_number(piece)
            else:
                self._read_name(piece)
        return "".join(self.out)

    def _read_words(self, words: str) -> None:
        if self.is_marked or self.field:
            first, space, rest = words.partition(" ")
            if self.is_marked and first in UNITS:
                if self.out[-1] == " ":
                    self.out.pop()
                self.out.append(space)
                words = rest
            elif self.field and first in _LITERALS and not is_telling(self.field):
                self._mark("<value>", first)
                return
        if HUMP.search(words):
            words = " ".join(map(reason_tokens.part, words.split(" ")))
        if words:
            self._keep(words)

    def _read_sign(self, sign: str) -> None:
        if self.is_marked and (sign in UNITS or (sign in "=/+-" and self.out[-1] != " ")):
            return  # `50%`, and how Base64 may end
        self.is_marked = False
        # "shop"."orders": what was said of the first is said of the second.
        if sign not in _BETWEEN_WORDS and (
            sign != "." or self.tokens[self.at - 1][-1] not in QUOTES
        ):
            self._say(sign)
        self.out.append(sign)

    def _read_assigned(self, token: str) -> None:
        """What follows `key=`: told by the key."""
        key = self._word()
        self.out.append("=")
        if token[1] != "(" and is_telling(key):
            self.out.append(_Reading(token[1:], key).template())
            self.is_marked = False
        else:
            self._mark("<value>", token)

    def _read_number(self, token: str) -> None:
        if (not self.field or is_telling(self.field)) and self._is_code(token):
            self._keep(token)
        else:
            self._mark(reason_tokens.number(token), token)

    def _read_name(self, token: str) -> None:
        if reason_tokens.is_hexadecimal(token):
            self._mark("<id>", token)
            return
        name = (has_digit(token) and self._with_code(token)) or reason_tokens.joined(token)
        if name[0] == "<" and name[-1] == ">":
            self._mark(name, token)
        else:
            self._keep(name)

    def _keep(self, token: str) -> None:
        self.out.append(token)
        self.earlier, self.said = self.said, token
        self.is_marked = False
        self.field = ""

    def _mark(self, mark: str, said: str) -> None:
        """Put a mark; what stands before a number and belongs to it goes."""
        if self._word_as_written() in BEFORE_NUMBERS:
            self._drop_last_words()
        self.out.append(mark)
        self._say(said)
        self.is_marked = True
        self.field = ""

    def _say(self, token: str) -> None:
        self.earlier, self.said = self.said, token

    def _drop_last_words(self) -> None:
        """Leave out a currency, a weekday, a month: `Wed Feb 11`, `EUR 12.50`."""
        out = self.out
        while out and out[-1] in (" ", ","):
            out.pop()
        words = out.pop().split() if out else []
        while words and words[-1] in BEFORE_NUMBERS:
            words.pop()
        out.append("".join(f"{word} " for word in words))

    def _word_as_written(self) -> str:
        return self.said.rstrip().rpartition(" ")[2]

    def _word(self) -> str:
        """The word before, in lower case."""
        return self._word_as_written().lower()

    def _word_before(self) -> str:
        """The word before that one."""
        words = self.said.split()
        return (words[-2] if len(words) > 1 else self.earlier.rstrip().rpartition(" ")[2]).lower()

    def _begins(self) -> bool:
        return self.at == 0 or (self.at == 1 and self.tokens[0] in "[(")

    def _next(self) -> str:
        """The token after this one; of the last one a space, as if the text went on."""
        return self.tokens[self.at + 1] if self.at + 1 < len(self.tokens) else " "

    def _following(self) -> str:
        return "".join(self.tokens[self.at + 1 : self.at + 9])

    # --- Codes ---------------------------------------------------------------------------------

    def _with_code(self, token: str) -> str:
        """A token with digits if the words before it say that it is a name or a code."""
        word = self._word()
        if word in SCHEMA_WORDS and not _NO_NAME.search(token):
            return reason_tokens.unnumbered(token)
        is_code = (self._is_code_word(word) and _SHORT_CODE.fullmatch(token)) or (
            self._begins() and self._next() in ":])" and _LEADING_CODE.fullmatch(token)
        )
        return token if is_code else ""

    def _is_code(self, token: str) -> bool:
        """Whether a token that begins with a digit tells kinds apart."""
        if len(token) > 10:
            return False
        word = self._word()
        if self._is_code_word(word) and _SHORT_CODE.fullmatch(token):
            return True
        if len(token) == 5 and word.isdigit() and token.isdigit():
            # `1062 (23000)`: the SQLSTATE after the server's own code.
            return self.tokens[self.at - 1] == "("
        return len(token) == 3 and token[0] in "345" and token.isdigit() and self._is_status(word)

    def _is_status(self, word: str) -> bool:
        """Whether a number that may be an HTTP status, or a server's reply code, is one here."""
        following = self._following()
        if _STATUS_PHRASE.match(following) or (self._begins() and _REPLY.match(following)):
            return True
        if following[:1] not in (")", "]") or self.tokens[self.at - 1] not in "([":
            if word not in STATUS_WORDS or _COUNTS.match(following):
                return False
            if word in ANSWER_WORDS or (word == "with" and self._word_before() in ANSWER_WORDS):
                return True
        return _ABOUT_HTTP.search(self.text) is not None

    def _is_code_word(self, word: str) -> bool:
        if word.startswith("http") and "://" not in word:
            return True
        if word not in CODE_WORDS and not word.endswith(("code", "status", "errno", "sqlstate")):
            return False
        if word in ("error", "err") and self._next() == " " and self._following()[1:2].islower():
            return False  # `Error: 3 fields are missing`: a count
        other = self._word_before()
        if word == "number":
            return other.endswith("error")
        # `unexpected character 'x' (code 120)`: a code of what was quoted.
        return word not in NO_CODE and other not in NO_CODE and other != _QUOTED

    # --- Quotes --------------------------------------------------------------------------------

    def _read_quoted(self, token: str) -> None:
        inner = token[1:-1] if token[0] in QUOTES else token[2:-1]
        previous = "".join(self.tokens[max(0, self.at - 2) : self.at]).rstrip()[-1:]
        if self._next() == ":" and previous in ("{", ",", "["):
            self._keep(token)
            self.field = self.said = inner.lower()
        elif (kept := self._kept(inner, previous)) is None:
            self._mark("<value>", _QUOTED)
            self.is_marked = False
        else:
            self.out.append(token.replace(inner, kept, 1))
            self.is_marked = False

    def _kept(self, inner: str, previous: str) -> str | None:
        """What stays of a text in quotes; None if it is a value."""
        word = self._word()
        if word == "name":
            word = self._word_before()
        if previous == "=" or self.field:
            return self._kept_of_field(self.field or word, inner)
        if word in SCHEMA_WORDS or (word == "key" and self._word_before() == "for"):
            if len(inner) <= 200 and ("(" in inner or _IDENTIFIER.fullmatch(inner)):
                return _ONE_OF_MANY.sub("<n>", _POSITION.sub("[<n>]", inner))
            return None
        return self._kept_text(inner, word) if " " in inner else self._kept_word(inner, word)

    def _kept_text(self, inner: str, word: str) -> str | None:
        if _FILE.match(inner):
            return reason_tokens.path(inner)
        is_error = word in TEXT_KEYS or word.endswith(("error", "exception"))
        is_told = is_error or inner.count(" ") >= 7 or _STATUS_LINE.match(inner)
        return template(inner) if is_told else None

    def _kept_word(self, inner: str, word: str) -> str | None:
        if _SHORT_CODE.fullmatch(inner) and self._is_code_word(word):
            return inner
        if self._is_name_here(inner, word):
            return _POSITION.sub("[<n>]", inner)
        if "://" in inner or (_LOCATION.match(inner) and word not in VALUE_WORDS):
            return template(inner)
        return None

    def _kept_of_field(self, field: str, inner: str) -> str | None:
        self.field = ""
        if " " in inner:
            is_text = field in TEXT_KEYS or field.endswith("message")
            return template(inner) if is_text else None
        if not is_telling(field):
            return None
        if _is_name(inner):
            return _POSITION.sub("[<n>]", inner)
        return inner if field.endswith(("code", "state")) and _SHORT_CODE.fullmatch(inner) else None

    def _is_name_here(self, inner: str, word: str) -> bool:
        following = self._following()
        if not _is_name(inner) or _VALUE_AFTER.match(following):
            return False
        if word in NAME_WORDS or _NAMED_AFTER.match(following):
            return True
        if word in VALUE_WORDS or word.isdigit():
            return False
        # A whole reason is what was looked up and not found; else only the form of a name counts.
        if len(self.tokens) == 1 or self.tokens[self.at][0] == "`":
            return True
        if self._word_before() in UNKNOWN_WORDS:
            return True
        return "_" in inner or "." in inner or not (inner.islower() or inner.istitle())


def _is_name(text: str) -> bool:
    """Whether a text looks like a name in code, not like a value."""
    if len(text) > 120 or not _IDENTIFIER.fullmatch(text):
        return False
    return not has_digit(_POSITION.sub("", text))
