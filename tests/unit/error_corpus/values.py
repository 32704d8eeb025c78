"""The incidental parts of an error: everything that may change while the cause stays the same."""

from __future__ import annotations

import base64
import json
import random
import string
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

Value = Callable[[random.Random, str], str]

BASE62 = string.ascii_letters + string.digits
CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
NAMES = ("maria", "j.novak", "li.wei", "a.kowalska", "tom+test", "zoe", "bjorn", "priya.s")
PEOPLE = (
    "Maria Schmidt", "José Núñez", "Ana-Lucía Peña", "Li Wei", "Björn Åkesson", "Priya S.",
    "Conor O'Brien", "Анна Петрова", "佐藤 健", "Zoë van Dijk",
)  # fmt: skip
INPUTS = (
    "12 Baker St, apt 4", "n/a", "N/A - see note", "ten", "12,50 €", "-", "1O0", "Straße 5",
    "abc123", "please call before 9am", "50%", "null", "two boxes, one broken", "ул. Ленина, 7",
    "32.OO", "+49 (0)170 / 555", "???", "Zürich",
)  # fmt: skip
ZONES = ("eu-west-1", "us-east-2", "ap-southeast-1", "eu-central-1")
DOMAINS = ("partner.io", "example.com", "shipfast.net", "acme.internal", "corp.local", "ratesrv.eu")


def _chars(rng: random.Random, alphabet: str, count: int) -> str:
    return "".join(rng.choices(alphabet, k=count))


def _between(arg: str, default: str) -> tuple[int, int]:
    low, _, high = (arg or default).partition("-")
    return int(low), int(high)


def integer(rng: random.Random, arg: str) -> str:
    return str(rng.randint(*_between(arg, "1-999999")))


def hexadecimal(rng: random.Random, arg: str) -> str:
    return _chars(rng, "0123456789abcdef", int(arg or 8))


def uuid(rng: random.Random, arg: str) -> str:
    raw = hexadecimal(rng, "32")
    dashed = "-".join((raw[:8], raw[8:12], "4" + raw[13:16], "a" + raw[17:20], raw[20:]))
    shapes = {"plain": raw, "upper": dashed.upper(), "dashed": dashed}
    return shapes[arg] if arg != "any" else rng.choice(sorted(shapes.values()))


def prefixed(rng: random.Random, arg: str) -> str:
    return f"{arg}_{_chars(rng, BASE62, rng.choice((6, 8, 14, 24)))}"


def base64_text(rng: random.Random, arg: str) -> str:
    return base64.b64encode(rng.randbytes(int(arg or 24))).decode()


def jwt(rng: random.Random, _: str) -> str:
    parts = (b'{"alg":"RS256","typ":"JWT"}', f'{{"sub":"{rng.random()}"}}'.encode())
    head, body = (base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts)
    return f"{head}.{body}.{_chars(rng, BASE62 + '-_', 43)}"


def amount(rng: random.Random, arg: str) -> str:
    value = rng.choice((rng.uniform(0.01, 99), rng.uniform(100, 250_000)))
    text = f"{value:,.2f}" if arg == "grouped" else f"{value:.2f}"
    return text.translate(str.maketrans(",.", ".,")) if arg == "german" else text


def _moment(rng: random.Random) -> datetime:
    start = datetime(2024, 1, 1, tzinfo=UTC)
    return start + timedelta(milliseconds=rng.randrange(80_000_000_000))


def iso(rng: random.Random, _: str) -> str:
    moment = _moment(rng)
    return rng.choice(
        (
            moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            moment.isoformat(timespec="seconds"),
            moment.strftime("%Y-%m-%dT%H:%M:%SZ"),
            moment.strftime("%Y-%m-%dT%H:%M:%S.%f") + "+02:00",
        )
    )


def moment_as(form: str) -> Value:
    return lambda rng, _: _moment(rng).strftime(form)


def epoch(rng: random.Random, arg: str) -> str:
    seconds = _moment(rng).timestamp()
    return str(int(seconds * 1000)) if arg == "ms" else str(int(seconds))


def duration(rng: random.Random, _: str) -> str:
    return rng.choice(
        (
            f"{rng.randint(1, 60)}m{rng.randint(1, 59)}s",
            f"{rng.uniform(0.1, 60):.3f}s",
            f"{rng.randint(1, 99999)}ms",
            f"{rng.randint(1, 300)}s",
        )
    )


def host(rng: random.Random, _: str) -> str:
    service = rng.choice(("api", "db", "rates", "pg-replica", "orders", "cache", "gw"))
    return rng.choice(
        (
            f"{service}-{rng.randint(1, 40)}.{rng.choice(ZONES)}.{rng.choice(DOMAINS)}",
            f"{service}.{rng.choice(DOMAINS)}",
            f"ip-{ipv4(rng, '').replace('.', '-')}.{rng.choice(ZONES)}.compute.internal",
            f"{service}{rng.randint(1, 9)}.prod.{rng.choice(DOMAINS)}",
        )
    )


def pod(rng: random.Random, arg: str) -> str:
    suffix = _chars(rng, "bcdfghjklmnpqrstvwxz2456789", 5)
    return f"{arg or 'worker'}-{hexadecimal(rng, '10')}-{suffix}"


def ipv4(rng: random.Random, _: str) -> str:
    rest = (rng.randint(0, 255), rng.randint(0, 255), rng.randint(1, 254))
    return ".".join(map(str, (rng.choice((10, 172, 192)), *rest)))


def ipv6(rng: random.Random, _: str) -> str:
    groups = [f"{rng.randint(1, 65535):x}" for _ in range(rng.choice((2, 4)))]
    return rng.choice((f"fd00:{groups[0]}::{groups[1]}", f"2001:db8:{':'.join(groups)}::1"))


def port(rng: random.Random, _: str) -> str:
    return str(rng.choice((443, 5432, 6379, 8080, 8443, 9200, rng.randint(30000, 65000))))


def email(rng: random.Random, _: str) -> str:
    return f"{rng.choice(NAMES)}{rng.choice(('', str(rng.randint(1, 99))))}@{rng.choice(DOMAINS)}"


def query(rng: random.Random, _: str) -> str:
    pairs = [
        f"page={rng.randint(1, 50)}", f"since={epoch(rng, '')}", f"token={_chars(rng, BASE62, 20)}",
        f"email={rng.choice(NAMES)}%40{rng.choice(DOMAINS)}", "expand=lines%2Ctax",
    ]  # fmt: skip
    return "&".join(rng.sample(pairs, rng.randint(1, 4)))


def unix_path(rng: random.Random, arg: str) -> str:
    root = rng.choice(("/var/spool/in", "/mnt/nfs2/exports", f"/tmp/job-{hexadecimal(rng, '6')}"))
    return f"{root}/{_moment(rng):%Y/%m/%d}/{_chars(rng, BASE62, 10)}.{arg or 'csv'}"


def windows_path(rng: random.Random, arg: str) -> str:
    root = rng.choice(("C:\\Temp", "D:\\Exports\\Daily", f"\\\\fs{rng.randint(1, 9)}\\share$\\in"))
    return f"{root}\\{_moment(rng):%Y%m%d}\\{_chars(rng, BASE62, 8)}.{arg or 'xlsx'}"


def json_fragment(rng: random.Random, _: str) -> str:
    return json.dumps(
        {
            "id": rng.choice((rng.randint(1, 10**7), uuid(rng, "dashed"))),
            "customer": {"name": rng.choice(PEOPLE), "email": email(rng, "")},
            "total": round(rng.uniform(1, 5000), 2),
            "at": iso(rng, ""),
            "gift": rng.random() < 0.5,
        },
        separators=rng.choice(((",", ":"), (", ", ": "))),
        ensure_ascii=False,
    )


def user_input(rng: random.Random, _: str) -> str:
    text = rng.choice(INPUTS)
    return rng.choice((text, f"{text} {rng.randint(1, 99)}"))


def size(rng: random.Random, _: str) -> str:
    return rng.choice(
        (
            f"{rng.uniform(1, 900):.1f} MB",
            f"{rng.randint(1, 900)}KiB",
            f"{rng.randint(1000, 10**8)} bytes",
        )
    )


VALUES: dict[str, Value] = {
    "int": integer,
    "line": lambda rng, _: str(rng.randint(12, 940)),
    "digits": lambda rng, arg: _chars(rng, string.digits, int(arg or 6)),
    "hex": hexadecimal,
    "addr": lambda rng, _: f"0x7f{hexadecimal(rng, '10')}",
    "alnum": lambda rng, arg: _chars(rng, BASE62, int(arg or 10)),
    "upper": lambda rng, arg: _chars(rng, string.ascii_uppercase, int(arg or 2)),
    "uuid": lambda rng, arg: uuid(rng, arg or "dashed"),
    "ulid": lambda rng, _: "01" + _chars(rng, CROCKFORD, 24),
    "oid": lambda rng, _: hexadecimal(rng, "24"),
    "id": prefixed,
    "b64": base64_text,
    "jwt": jwt,
    "amount": amount,
    "cur": lambda rng, _: rng.choice(("EUR", "USD", "GBP", "PLN", "JPY", "CHF")),
    "iso": iso,
    "date": moment_as("%Y-%m-%d"),
    "dmy": moment_as("%d.%m.%Y"),
    "basic": moment_as("%Y%m%dT%H%M%SZ"),
    "logtime": lambda rng, _: f"{_moment(rng):%Y-%m-%d %H:%M:%S},{rng.randint(0, 999):03}",
    "rfc2822": lambda rng, _: format_datetime(_moment(rng)),
    "epoch": epoch,
    "ms": lambda rng, _: f"{rng.randint(5, 60000)}ms",
    "dur": duration,
    "float": lambda rng, _: f"{rng.uniform(0.01, 90):.3f}",
    "host": host,
    "pod": pod,
    "ipv4": ipv4,
    "ipv6": ipv6,
    "port": port,
    "email": email,
    "query": query,
    "upath": unix_path,
    "wpath": windows_path,
    "path": lambda rng, arg: rng.choice((unix_path, windows_path))(rng, arg),
    "person": lambda rng, _: rng.choice(PEOPLE),
    "input": user_input,
    "json": json_fragment,
    "size": size,
    "pct": lambda rng, _: f"{rng.uniform(0, 100):.1f}%",
    "hashcode": lambda rng, _: str(rng.randint(-(2**31), 2**31 - 1)),
    "lambda": lambda rng, _: f"$$Lambda${rng.randint(20, 2400)}/0x0000000{hexadecimal(rng, '9')}",
    "proxy": lambda rng, _: f"$Proxy{rng.randint(20, 400)}",
    "cglib": lambda rng, _: f"$$EnhancerBySpringCGLIB$${hexadecimal(rng, rng.choice('78'))}",
    "pick": lambda rng, arg: rng.choice(arg.split("|")),
    "maybe": lambda rng, arg: rng.choice((arg, "")),
}  # fmt: skip
