"""The tokens of a reason, and what each is by its form alone: a name that stays, or a value's mark.

`TOKEN` cuts a reason into tokens that together are the reason again. Forms are rules of thumb about
what ids, numbers, addresses and paths look like everywhere; what the words around a token say is
decided in `normal_reason`. Every pattern is linear in its input.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from redrive.domain.reason_words import UNITS, words

TOKEN: Final = re.compile(
    r"""
    # Plain words, by far the most: none that goes on as a name, an address or a path.
    (?>(?:[^\W\d_]++(?![\w$@\\/]|[.:'\#+-][\w$/\\:])[ ]?)+)
    | [ ]
    # In quotes; an apostrophe within a word is none.
    | "[^"\n]*+"
    | '(?>(?:[^'\n]|(?<=\w)'(?=\w))*)'(?!\w)
    | `[^`'\n]*+[`']
    | \u201c[^\u201c\u201d\n]*+\u201d | \u201e[^\u201c\u201d\n]*+[\u201c\u201d]
    | \u2018[^\u2019\n]*+\u2019 | «[^»\n]*+»
    | [bBuUrRNE]'[^'\n]*+'(?!\w)
    # A number, a time, an IPv4 address, an id that begins with a digit.
    | [+\u2212-]?\d\w*+(?>(?:[.,:]\d\w*+|['\u2019]\d{3}(?!\w)|[/+-]++\w++)*)(?!::)
    # A UUID, though a name would do: most ids are.
    | [0-9a-f]{8}-[0-9a-f-]{27}(?!\w)
    # An IPv6 address, with its port.
    | \[?(?=[0-9A-Fa-f:.]*:[0-9A-Fa-f]*:)(?:[0-9A-Fa-f]{0,4}:){2,7}[0-9A-Fa-f.]*+(?:%\w+)?
      (?:\](?::\d+)?)?(?!\w)
    # A URL.
    | (?:[a-z]++:)?[A-Za-z][\w+.-]*+://(?:[^\s'"<>(){}\[\],;/]*+@)?(?:\[[\w:.%]*+\])?
      [^\s'"<>(){}\[\],;]*+
    # Paths of Windows and of Unix, the latter also with a query.
    | (?:[A-Za-z]:\\|\\\\(?=\w))[^\s'":,;()<>|*?]++
    | /[\w.$@%+~-]++(?>(?:/[\w.$@%+~=-]*+)*)(?:\?[^\s'"<>()]*+)?
    # A name with all that joins its parts, an email or a host among them.
    | [\w$]++(?>(?:(?:[.:@/\#+\\'-]{1,3}|->)[\w$]++)*)
    # A value that is assigned: a tuple, or up to what ends it.
    | =\([^\n]{0,400}?\)(?=[\s.,;]|\Z) | =[^\s,;&()\[\]{}'"`<>=\u3001\u3002\uff0c\uff1b]++
    | [\s\S]
    """,
    re.VERBOSE,
)
QUOTES: Final = frozenset("\"'`\u201c\u201e\u2018«")

_DIGIT: Final = re.compile(r"\d")
HUMP: Final = re.compile(r"[a-z][A-Z]")
_HEXADECIMAL: Final = re.compile(r"(?=[a-fA-F-]*\d)[0-9a-fA-F]{8,}+(?>(?:-[0-9a-fA-F]{4,}+)*)")
_HUMPS: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_VOWEL: Final = re.compile(r"[aeiouyAEIOUY]")
_ABBREVIATIONS: Final = frozenset(
    [
        "db",
        "tx",
        "rx",
        "http",
        "https",
        "html",
        "xml",
        "js",
        "ts",
        "px",
        "ctx",
        "mgr",
        "str",
        "cmd",
        "src",
        "dst",
        "ptr",
        "msg",
        "pwd",
        "pdf",
        "csv",
        "tcp",
        "ssl",
        "tls",
        "ftp",
        "sftp",
        "sql",
        "jms",
        "rpc",
        "grpc",
        "dns",
        "jwt",
        "cdn",
        "pk",
        "fk",
        "vm",
        "fs",
        "gb",
        "kb",
        "mb",
        "nr",
        "num",
        "sms",
        "vpn",
        "xls",
    ]
)
_PREFIXED: Final = re.compile(
    r"(?!get|set|is|on|to|has|add|op|do|test)[a-z]{2,6}[_-]"
    r"(?:(?=[a-z0-9]*[A-Z])(?=[A-Z]*[a-z0-9])|(?=[a-z]*\d+[a-z]))[A-Za-z0-9]{6,}"
)
"""`cus_sXKzkNRi`: an id with the kind of thing before it."""
_SWITCH: Final = re.compile(r"[a-z](?=[A-Z0-9+/])|\d(?=[A-Za-z+/])|[A-Z](?=[0-9+/])")
_CODE: Final = re.compile(
    r"(?:ORA|PLS|TNS|RMAN|DPY|DPI|JDBC|NET|ERR|ERROR|EC|SP2)[-_]?\d{1,6}|E\d{3,5}|P\d{4}|"
    r"(?:TS|CS|NU|MSB|EF|RS|AMQ)\d{4,5}|SQL\d{4,5}[NCW]?|(?:HY|XX|IM|YE)\d{3}|HHH\d{6}|"
    r"(?:AADSTS|IDX|PGRST|NETSDK)\d{2,7}|HTTP[-_]?\d{3}|CVE-\d{4}-\d+|RFC-?\d{4}|"
    r"(?:ISO|UTF|SHA|AES|RSA|MD|CP|ES|HS|PS|TLSv|SSLv|IPv|HTTP)-?\d{1,4}(?:-\d{1,2})?"
)
"""Error codes and names of standards, wherever they stand."""
_NAME: Final = re.compile(
    r"(?=[A-Z]*[a-z_$-]*[aeiouyAEIOUY])[A-Za-z_$-]*[A-Za-z]{3}_?(?:\d|16|32|64|128|256|384|512)"
    r"(?:[A-Z_][A-Za-z_]*)?|(?:[A-Za-z_]+[_-])+[vV]\d{1,3}(?:[_-][A-Za-z_-]+)?"
    r"|(?:[sS]3|EC2|H2|DB2|MD5|UTF8|B2B|P2P|OAuth2|X509|[Ll]og4j|u?int\d+|[iuf](?:8|16|32|64|128)|x64|x86)(?:[A-Z_][A-Za-z_]*)?"
)
"""`address2`, `orders-v2`, `Base64Decoder`: a name, not an id."""
_VERSION: Final = re.compile(r"[vV]\d{1,3}")
_GENERATED: Final = re.compile(r"(\b\$?[pP]roxy|\$\w*?)\d\w*")
"""What a runtime numbers: `$Proxy42`, `Order$$Lambda$12`."""
_JOINTS: Final = re.compile(r"([.:#@/\\+'>]+)")
"""Splits a name into its parts, and what joins them between."""
_DOMAINS: Final = frozenset(
    [
        "com",
        "net",
        "org",
        "io",
        "internal",
        "local",
        "lan",
        "cloud",
        "dev",
        "eu",
        "de",
        "svc",
        "corp",
    ]
)
_DOMAINS_OR_NAMES: Final = words(
    "co uk fr pl it es nl ch at be se no ru cn jp br us ca au in info app ai test example"
)
"""Domains of hosts with two dots or a port; `order.at` is a name."""
_ROOTS: Final = re.compile(
    r"/(?:tmp|var|home|Users|opt|srv|data|mnt|root|media|storage|uploads|private|nfs|efs|shared|"
    r"run|usr|app|files?)/"
)
_PRIVATE: Final = re.compile(r"/(?:tmp|home|Users)/|\\(?:Temp|Users)\\", re.IGNORECASE)


def has_digit(text: str) -> bool:
    # Most are plain words, of which that is known at once.
    return not text.isalpha() and _DIGIT.search(text) is not None


def number(token: str) -> str:
    """The mark of a token that begins with a digit."""
    unit = token.lstrip("+-0123456789.,_")
    if token.count(".") == 3 or unit[:1] == "x":
        return "<addr>"
    if unit and unit not in UNITS:
        return "<time>" if ":" in token else "<id>"
    return "<time>" if token.count("-") == 2 and token[0] != "-" else "<n>"


def is_hexadecimal(token: str) -> bool:
    """Whether it is a UUID, a digest, an object's id: what most ids are."""
    return _HEXADECIMAL.fullmatch(token) is not None


def joined(token: str) -> str:
    """What a token that begins with a letter is without its values: a name, an address, a path."""
    return _cached(token) if len(token) <= 80 and not has_digit(token) else _joined(token)


@lru_cache(maxsize=4096)
def _cached(token: str) -> str:
    # Names repeat from letter to letter; tokens with digits hardly do.
    return _joined(token)


def _joined(token: str) -> str:
    if address := _address(token):
        return address
    if token.startswith("eyJ") or _is_base64(token):
        return "<id>"
    parts = _JOINTS.split(token)
    if len(parts) == 1:
        return part(token)
    # The version of an API differs between servers, that of a package tells classes apart.
    keeps = _VERSION.fullmatch if "." in token else lambda _: None
    parts[::2] = [each if keeps(each) else part(each) for each in parts[::2]]
    return "".join(parts)


def _address(token: str) -> str:
    """What is left of a URL, a path, an email, a host; nothing of what is none."""
    if "://" in token:
        return _url(token)
    if ":\\" in token or token[0] in "/\\":
        return path(token)
    if "@" in token and (found := _at(token)):
        return found
    is_ipv6 = token.count(":") > 1 and not token.strip("[]0123456789abcdefABCDEF:.%")
    is_host = "." in token and "/" not in token and _is_host(token)
    return "<addr>" if is_ipv6 or is_host else ""


def part(token: str) -> str:
    """A part of a name, or what it is instead."""
    if has_digit(token):
        return number(token) if token[0].isdigit() else _part_with_digit(token)
    if token.islower() or token.istitle() or token.isupper():
        return token
    return "<id>" if _PREFIXED.fullmatch(token) or _is_random(token) else token


def _part_with_digit(token: str) -> str:
    if token[0] in "vV" and _VERSION.fullmatch(token):
        return "<n>"
    if "$" in token or "roxy" in token:
        return unnumbered(token)
    if len(token) > 40 or is_hexadecimal(token):
        return "<id>"
    is_name = _CODE.fullmatch(token) or _NAME.fullmatch(token)
    return token if is_name and not (_PREFIXED.fullmatch(token) or _is_random(token)) else "<id>"


def _is_random(token: str) -> bool:
    """Whether letters are no words: in camel case hardly two have one letter or no vowel."""
    if len(token) < 6:
        return False
    humps = _HUMPS.findall(token)
    odd = sum(
        len(hump) == 1
        or (not hump.isupper() and not _VOWEL.search(hump) and hump.lower() not in _ABBREVIATIONS)
        for hump in humps
    )
    return odd >= 2 and len(token) < 6 * len(humps)


def unnumbered(name: str) -> str:
    """The name of a class without what its runtime numbers."""
    return _GENERATED.sub(r"\1<n>", name)


def path(token: str) -> str:
    """A file by its extension, if its path has a number or is somebody's; a route by its words."""
    if token[0] == "/" and not _ROOTS.match(token):
        return _segments(token)
    if not has_digit(token) and not _PRIVATE.search(token):
        return token
    bare = token.rstrip(".")
    _name, dot, extension = bare.replace("\\", "/").rpartition("/")[2].rpartition(".")
    return f"<path>.{extension}" if dot and extension.isalpha() else "<path>"


def _segments(token: str) -> str:
    route = token.partition("?")[0]
    bare = route.rstrip(".:")
    ends = token[len(bare) :] if len(bare) < len(route) else ""
    parts = _JOINTS.split(bare)
    parts[::2] = map(part, parts[::2])
    return "".join(parts) + ends[:1]


def _url(token: str) -> str:
    """A host in a domain is an address; a bare name without a number is that of a service."""
    scheme, _, rest = token.partition("://")
    authority, slash, route = rest.partition("/")
    authority = authority.partition("?")[0].rpartition("@")[2]
    host = authority.rstrip(".:")
    ends = authority[len(host) :] if not slash else ""
    if "." in host or ":" in host or has_digit(host):
        host = "<addr>"
    return f"{scheme}://{host}{ends[:1]}" + (_segments(f"/{route}") if slash else "")


def _at(token: str) -> str:
    """An email, or an object and its hash, a worker and its host; nothing if neither."""
    name, _, rest = token.rpartition("@")
    if "." in rest and "/" not in rest:
        return "<email>"
    return f"{_joined(name)}@<id>" if name and has_digit(rest) else ""


def _is_host(token: str) -> bool:
    host, _, port = token.partition(":")
    domain = host.rpartition(".")[2]
    if port and not port.isdigit():
        return False
    return domain in _DOMAINS or (
        domain in _DOMAINS_OR_NAMES and (bool(port) or host.count(".") > 1)
    )


def _is_base64(token: str) -> bool:
    """Long, and changing between small letters, capitals and digits more often than names do."""
    return (
        len(token) >= 24
        and has_digit(token)
        and "." not in token
        and len(_SWITCH.findall(token)) * 4 > len(token)
    )
