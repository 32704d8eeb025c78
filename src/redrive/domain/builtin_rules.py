"""The rules that Redrive brings: what well-known failures have in common, in whatever words.

An error type is read as its words: `java.net.SocketTimeoutException`, `SOCKET_TIMEOUT` and
`SocketTimeout` all say "socket timeout". A reason is read as it is, whatever its case. Patterns
have word borders, and a status code counts only where the text calls it one: `status 5000`,
`customer 502 not found` and `550 5.1.1 mailbox unknown` are no server errors.

The order matters, and the first rule that matches decides:

- rate limits and quotas: `scheduled`. The other side says itself that it is too early.
- outages: `conditional`. The error says that a service as a whole is out of order or closed for
  now: an open circuit breaker, maintenance, no healthy instance.
- server errors: `immediate`. Any 5xx, also a plain 503: one instance gave one bad answer, and the
  words "Service Unavailable" behind that code are only its name.
- unavailable services: `conditional`. The same words without a code: the consumer itself took the
  service for gone.
- timeouts and connection errors: `immediate`.

A rule errs on the side of silence: what it does not know is left to the default, a person.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from redrive.domain.letter import Letter
from redrive.domain.strategy import Chosen, Strategy

LONGEST_READ: Final = 2000
"""Characters of a reason that are read: what failed comes first, then what it was about."""
_LONGEST_QUOTE: Final = 60


@dataclass(frozen=True, slots=True)
class BuiltinRule:
    """Matches by the words of the error type, or by the reason."""

    name: str
    strategy: Strategy
    types: re.Pattern[str]
    reasons: re.Pattern[str]

    def choose(self, letter: Letter) -> Chosen | None:
        """This rule's strategy, if type or reason match."""
        if found := self.types.search(words_of(letter.error_type)):
            why = f"error type {letter.error_type!r} says {_quoted(found)}"
            return Chosen(strategy=self.strategy, rule=self.name, why=why)
        reason = letter.error_reason[:LONGEST_READ]
        if found := self.reasons.search(reason.lower()):
            why = f"the reason says {_quoted(found, reason)}"
            return Chosen(strategy=self.strategy, rule=self.name, why=why, quotes_reason=True)
        return None


def _quoted(found: re.Match[str], written: str = "") -> str:
    """The words that matched, as they were written; small letters may be more than large ones."""
    same = len(written) == len(found.string)
    text = " ".join((written[slice(*found.span())] if same else found[0]).split())
    return repr(text if len(text) <= _LONGEST_QUOTE else text[: _LONGEST_QUOTE - 1] + "…")


_BORDERS: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|(?<=[A-Za-z])(?=\d)")


def words_of(error_type: str) -> str:
    """The words of an error type, in small letters with blanks between: `HTTP503Error` has three,
    `java.net.ConnectException` four."""
    return " ".join(re.findall(r"[^\W_]+", _BORDERS.sub(" ", error_type))).lower()


def _pattern(*alternatives: str) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{each})" for each in alternatives))


def _types(*words: str) -> re.Pattern[str]:
    return _pattern(*(rf"\b(?:{each})\b" for each in words))


def _status(codes: str) -> tuple[str, ...]:
    """A status code where the text calls it one: `HTTP/1.1 503`, `"statusCode": 503`,
    `returned 503`."""
    code = rf"(?:{codes})(?!\w|[.,]\d)"
    between = r"[\s:=\"'(\[-]{1,4}"
    verbs = r"returned|responded with|replied with|answered(?: with)?|got|received"
    answer = r"response|error|status|from|bad|internal|service|gateway|server|too"
    end = rf"(?=\s*(?:\Z|[,;:)\]\n]|\.(?:\s|\Z)|(?:{answer})\b))"
    return (
        rf"\bhttps?(?:/\d(?:\.\d)?)?(?:[ _-]?(?:error|status|response|code))*{between}{code}",
        rf"\b(?:http)?(?:status|response|error)[ _-]?code{between}{code}",
        rf"\b(?:http)?status{between}{code}",
        rf"\berror {code}",
        rf"\b(?:{verbs}) (?:an? |the |http |status |code )*{code}{end}",
    )


_5XX: Final = r"5(?:0\d|1[01]|2\d|30|9[89])"
"""Those of HTTP, and of the proxies before it; not 547 of a database or 550 of a mail server."""

_RATE_LIMITS: Final = BuiltinRule(
    "built-in: rate limits and quotas",
    Strategy.SCHEDULED,
    _types(
        r"rate ?limit(?:ed|er|ing|s)?",
        r"too many requests",
        r"throttl(?:e|ed|ing)",
        r"(?:request|usage|api|throughput) (?:limit )?exceeded",
        r"quota (?:exceeded|exhausted|reached|error|exception|limit)",
        r"(?:insufficient|over|out of|exceeded) quota",
        r"resource exhausted",
        r"slow down",
        r"(?:http|status|error|code) 429",
    ),
    _pattern(
        r"\brate[-_ ]?limit(?:ed|ing)\b",
        r"(?<!invalid )(?<!unknown )(?<!no )\brate[-_ ]?limits?\b"
        r"(?! (?:value|setting|must|should|not found|plan|config))",
        r"\brate exceeded\b",
        r"\btoo many requests\b",
        r"\bthrottl(?:ed|ing(?:exception)?)\b",
        r"\b(?:request|usage|api call) limit (?:was |has been |is )?(?:exceeded|reached|hit)\b",
        r"\bquotas?\b(?: [\w'\"`./-]{1,40}){0,4} (?:exceeded|exhausted|reached|used up)\b",
        r"\b(?:exceed(?:s|ed|ing)?|exhausted|over|out of|insufficient)(?: [\w'-]{1,20}){0,3}"
        r"[ _]quotas?\b",
        r"\bresource[_ ]?exhausted\b",
        r"\bslowdown\b|\bplease (?:slow down|reduce your request rate)\b",
        r"\b429\W{1,3}(?:client error|too many)\b",
        *_status("429"),
    ),
)

_OUTAGES: Final = BuiltinRule(
    "built-in: outages",
    Strategy.CONDITIONAL,
    _types(
        r"circuit(?: breaker)?(?: is)? open(?:ed)?",
        r"open circuit(?: breaker)?",
        r"circuit breaker(?: error| exception)?",
        r"broken circuit(?: exception)?",
        r"call not permitted(?: exception)?",
        r"(?:under|in|down for|planned|scheduled)? ?maintenance(?: mode)?(?: error| exception)?",
        r"(?:service |system )?outage",
        r"out of service",
        r"(?:service|system|server|backend|cluster) (?:is )?down",
        r"no (?:healthy|available) (?:upstream|backend|host|server|instance|node)s?",
    ),
    _pattern(
        r"\bcircuit(?:[- ]?breaker)?\b[^\n.;]{0,80}?\b(?:is |was |has )?(?:open(?:ed)?|tripped)\b",
        r"\bopen circuit\b",
        r"\b(?:down for|under|in|undergoing|during|due to|for) (?:\w+ )?maintenance\b(?! fee)",
        r"\bmaintenance (?:mode|window|in progress)\b",
        r"\b(?:service|system|provider|upstream|downstream|platform|major|ongoing) outage\b",
        r"\b(?:service|server|system|backend|cluster|database|upstream|provider|gateway|api)"
        r" (?:is |are )(?:currently |temporarily |completely )?(?:down|offline|out of service)\b",
        r"\bclusterdown\b",
        r"\bno (?:healthy|available|live) "
        r"(?:upstream|backend|host|server|instance|node|endpoint)s?\b",
        r"\bthe database system is (?:starting up|shutting down|in recovery mode)\b",
    ),
)

_SERVER_ERRORS: Final = BuiltinRule(
    "built-in: server errors",
    Strategy.IMMEDIATE,
    _types(
        r"internal server error",
        r"http server error",
        r"bad gateway",
        r"gateway time ?out",
        rf"(?:http|status|error|code) (?:{_5XX}|5xx)",
    ),
    _pattern(
        r"\binternal server error\b",
        r"\bbad gateway\b",
        r"\bgateway time-?out\b",
        rf"(?<![\w.]){_5XX}\W{{1,3}}(?:server error|service (?:temporarily )?unavailable)\b",
        r"\b5xx\b",
        *_status(_5XX),
    ),
)

_UNAVAILABLE: Final = BuiltinRule(
    "built-in: unavailable services",
    Strategy.CONDITIONAL,
    _types(
        r"(?:service|server|system|backend|upstream|dependency|provider) unavailable",
        r"temporarily unavailable",
    ),
    _pattern(
        r"\b(?:service|server|system|backend|upstream|dependency|provider|gateway|api)[ _]"
        r"(?:is |are |was )?(?:currently |temporarily )?(?:unavailable|not available)\b",
        r"\btemporarily unavailable\b(?! items?)",
    ),
)

_NO_TIMEOUTS: Final = r"(?<!invalid )(?<!unknown )(?<!unexpected )(?<!missing )(?<!negative )"

_TIMEOUTS: Final = BuiltinRule(
    "built-in: timeouts",
    Strategy.IMMEDIATE,
    _types(
        r"time ?outs?",
        r"timed ?out",
        r"deadline exceeded",
        r"time limit exceeded",
        r"e(?:socket)?timedout",
    ),
    _pattern(
        r"\btimed[- ]?out\b",
        rf"{_NO_TIMEOUTS}\btime-?outs?\b"
        r"(?!\s*=|[\"'`\]]| (?:must|should|value|parameter|argument|property|setting|option|field"
        r"|key|is (?:not|in)))",
        r"\bdeadline[_ ]?exceeded\b",
        r"\btime limit (?:was |has been )?exceeded\b",
        r"\be(?:socket)?timedout\b",
        r"\b(?:no (?:response|reply|answer)|(?:did|does) not (?:respond|reply|answer)) "
        r"(?:within|after|in time)\b",
        r"\btook too long to (?:respond|reply|answer|complete)\b",
    ),
)

_ERRNO: Final = (
    r"econn(?:refused|reset|aborted)|epipe|e(?:host|net)(?:unreach|down)|enotfound|eai again"
)

_CONNECTIONS: Final = BuiltinRule(
    "built-in: connection errors",
    Strategy.IMMEDIATE,
    _types(
        r"connect(?:ion|or|ivity)?(?: was)? (?:error|exception|failure|failed|refused|reset|aborted"
        r"|closed|lost|broken|forced)",
        r"(?:server|remote|client) disconnected",
        r"socket (?:error|exception|closed)",
        r"network (?:error|exception|failure|unreachable|down)",
        r"(?:unknown|unreachable) host",
        r"host (?:unreachable|not found)",
        r"no route to host",
        r"broken pipe",
        r"communications? (?:error|exception|failure)",
        r"(?:name resolution|dns|gai) ?error",
        r"psycopg(?: ?\d)? operational error",
        _ERRNO,
    ),
    _pattern(
        r"\bconnections? (?:attempt |was |were |has been |is |been )*"
        r"(?:refused|reset|aborted|closed|lost|dropped|terminated|interrupted|broken|failed"
        r"|not available|forcibly closed|timed out)\b",
        r"\b(?:could not|cannot|can't|unable to|failed to|couldn't) (?:re)?connect to\b",
        r"\bfailed to (?:establish|open|obtain|acquire|get) (?:an? )?(?:new |jdbc |database )?"
        r"connection\b",
        r"\bno connection could be made\b|\bactively refused\b",
        r"\b(?:closed|lost|terminating|dropped) (?:the |its |database )?connection\b",
        r"\bbroken pipe\b|\bsocket hang up\b|\bsocket (?:is |was )?closed\b",
        r"\bno route to host\b|\b(?:network|host) is (?:unreachable|down)\b|\bhost unreachable\b",
        r"\b(?:name or service not known|temporary failure in name resolution|no such host"
        r"|unknown ?host(?:exception)?|nodename nor servname provided"
        r"|remote name could not be resolved)\b",
        r"\bserver has gone away\b|\bremote end closed\b",
        r"\btoo many (?:connections|clients already)\b|\bconnection pool (?:is )?exhausted\b",
        r"\ba network-related or instance-specific error\b",
        r"\bcommunications link failure\b",
        r"\b(?:code = unavailable|statuscode\.unavailable)\b",
        rf"\b(?:{_ERRNO.replace(' ', '_')})\b",
    ),
)

BUILTIN_RULES: Final = (
    _RATE_LIMITS,
    _OUTAGES,
    _SERVER_ERRORS,
    _UNAVAILABLE,
    _TIMEOUTS,
    _CONNECTIONS,
)
"""In the order in which they are asked."""
