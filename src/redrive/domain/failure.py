"""What failed: error type, reason and stack, read from a message's headers.

Consumers say it in the words of their framework, and each framework has its own headers. The first
of these conventions that says something is taken whole; fields of two are never mixed, because the
headers of an earlier failure may still be there:

1. Redrive's own, unless their type only repeats the broker's reason: the retrier writes such a type
   when it gives up, and a framework's exception explains more;
2. Spring AMQP, when a recoverer published the message again;
3. MassTransit, of messages in `_error` and `_skipped` queues;
4. NServiceBus, of messages in an `error` queue;
5. Celery, whose messages name the task and nothing of the error: the task is named in the reason;
6. Redrive's own with a general type;
7. the broker's reason for the newest death.

Anyone may write any header, so nothing about values is taken for granted: one of a wrong type
counts as not there, and nothing raises. What is returned can be stored anywhere: NUL and lone
surrogates are replaced, and long texts are cut, with a mark at the cut.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from redrive.domain import headers as own
from redrive.domain.deaths import Death
from redrive.domain.retry import ERROR_TYPES

_Value = TypeVar("_Value")

UNKNOWN: Final = "UNKNOWN"

WORDS: Final = (own.ERROR_TYPE, own.ERROR_REASON, own.ERROR_STACK)
"""The headers in which a consumer says why it failed."""
UNSAID: Final = frozenset({"expired", "maxlen", "delivery_limit"})
"""Reasons of deaths of which no consumer says anything: it did not see the message, or crashed."""

GENERAL_TYPES: Final = frozenset({*ERROR_TYPES.values(), UNKNOWN})
"""Types that repeat why the broker dead-lettered, and not what went wrong."""

MAX_TYPE: Final = 200
"""Characters of an error type."""
MAX_REASON: Final = 8 * 1024
"""Bytes of a reason, in UTF-8."""
MAX_STACK: Final = 64 * 1024
"""Bytes of a stack, in UTF-8. A stack loses its middle: both ends tell where it failed."""
MAX_NAME: Final = 255
"""Bytes of the name of a queue or an exchange, and of a routing key, as AMQP has it."""

CUT: Final = "…"
CUT_LINES: Final = "\n… cut here …\n"

SPRING_MESSAGE: Final = "x-exception-message"
SPRING_STACK: Final = "x-exception-stacktrace"
SPRING_EXCHANGE: Final = "x-original-exchange"
SPRING_ROUTING_KEY: Final = "x-original-routingKey"
MASSTRANSIT_TYPE: Final = "MT-Fault-ExceptionType"
MASSTRANSIT_MESSAGE: Final = "MT-Fault-Message"
MASSTRANSIT_STACK: Final = "MT-Fault-StackTrace"
MASSTRANSIT_ADDRESS: Final = "MT-Fault-InputAddress"
MASSTRANSIT_REASON: Final = "MT-Reason"
NSERVICEBUS_TYPE: Final = "NServiceBus.ExceptionInfo.ExceptionType"
NSERVICEBUS_INNER_TYPE: Final = "NServiceBus.ExceptionInfo.InnerExceptionType"
NSERVICEBUS_MESSAGE: Final = "NServiceBus.ExceptionInfo.Message"
NSERVICEBUS_STACK: Final = "NServiceBus.ExceptionInfo.StackTrace"
NSERVICEBUS_QUEUE: Final = "NServiceBus.FailedQ"
CELERY_TASK: Final = "task"
CELERY_ID: Final = "id"
CELERY_RETRIES: Final = "retries"

_BY_DEATH: Final = {
    "rejected": "rejected by the consumer of its queue without a reason",
    "expired": "expired in its queue before it was consumed",
    "maxlen": "dropped from its queue, which was full",
    "delivery_limit": "delivered as often as its queue allows, and never acknowledged",
}
_NO_DEATH: Final = "no header says why it failed"
_PARKED: Final = "; Redrive could not publish it again, and parked it unchanged"

_CELERY: Final = {
    "rejected": "rejected",
    "expired": "expired in its queue",
    "maxlen": "dropped from a full queue",
    "delivery_limit": "delivered too often",
}
# Of the headers that Celery gives every task; `task` and `id` alone may be anyone's.
_CELERYS_OWN: Final = ("argsrepr", "kwargsrepr", "root_id", "lang")

TEXTS: Final = (
    own.ERROR_REASON,
    own.ERROR_STACK,
    SPRING_MESSAGE,
    SPRING_STACK,
    MASSTRANSIT_MESSAGE,
    MASSTRANSIT_STACK,
    NSERVICEBUS_MESSAGE,
    NSERVICEBUS_STACK,
)
"""The headers that reasons and stacks are read from."""

NAMES: Final = (
    *WORDS,
    SPRING_MESSAGE,
    SPRING_STACK,
    SPRING_EXCHANGE,
    SPRING_ROUTING_KEY,
    MASSTRANSIT_TYPE,
    MASSTRANSIT_MESSAGE,
    MASSTRANSIT_STACK,
    MASSTRANSIT_ADDRESS,
    MASSTRANSIT_REASON,
    NSERVICEBUS_TYPE,
    NSERVICEBUS_INNER_TYPE,
    NSERVICEBUS_MESSAGE,
    NSERVICEBUS_STACK,
    NSERVICEBUS_QUEUE,
    CELERY_TASK,
    CELERY_ID,
    CELERY_RETRIES,
    *_CELERYS_OWN,
)
"""Every header that is looked at here."""

_SPRINGS_WRAPPER: Final = "ListenerExecutionFailedException"
_WRAPPERS: Final = frozenset(
    {"System.AggregateException", "System.Reflection.TargetInvocationException"}
)
"""Exceptions of .NET that only carry another."""

_UNSTORABLE: Final = re.compile("[\x00\ud800-\udfff]")
_CAUSE: Final = "\nCaused by: "
_JAVA_CLASS: Final = re.compile(
    r"([A-Za-z_$][\w$]*+(?>(?:\.[\w$]++)*))(?>(?:: ?([^\r\n]*+))?)(?=[\r\n]|\Z)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a message is dead, as far as its headers tell."""

    error_type: str
    reason: str
    stack: str | None = None


def died_unsaid(headers: Mapping[str, object], died: Death) -> bool:
    """Whether a message died, in the queue that Redrive's headers are about, without its consumer:
    what they say of an error is then of a failure before."""
    return died.reason in UNSAID and headers.get(own.QUEUE) == died.queue


def without_words(headers: Mapping[str, _Value]) -> dict[str, _Value]:
    """These headers without what a consumer said of its failure."""
    return {name: value for name, value in headers.items() if name not in WORDS}


def read_failure(headers: Mapping[str, object], death_reason: str | None) -> Failure:
    """What failed, from decoded headers and the broker's reason for the newest death."""
    general_type = ERROR_TYPES.get(death_reason or "", UNKNOWN)
    redrives = _redrive(headers, general_type)
    if redrives and redrives.error_type not in GENERAL_TYPES:
        return redrives
    return (
        _spring(headers, general_type)
        or _masstransit(headers, general_type)
        or _nservicebus(headers, general_type)
        or _celery(headers, general_type, death_reason, redrives)
        or redrives
        or Failure(error_type=general_type, reason=_BY_DEATH.get(death_reason or "", _NO_DEATH))
    )


def parked(failure: Failure) -> Failure:
    """The failure of a message that Redrive could not publish again, and so rejected unchanged."""
    said = _cut_bytes(failure.reason, MAX_REASON - len(_PARKED.encode()))
    return replace(failure, reason=said + _PARKED)


def failed_queue(headers: Mapping[str, object]) -> str | None:
    """The queue that a framework names in a message that it published to an error queue itself.

    Such a message has no death: NServiceBus and MassTransit publish and acknowledge.
    """
    named = headers.get(NSERVICEBUS_QUEUE)
    if isinstance(named, str) and named.strip():
        if _is_address(named):
            return _queue_of(named)
        queue, at, _machine = named.strip().rpartition("@")
        return _name(queue if at else named.strip()) or None
    address = headers.get(MASSTRANSIT_ADDRESS)
    return _queue_of(address) if isinstance(address, str) else None


def published_to(headers: Mapping[str, object]) -> tuple[str | None, str | None]:
    """Exchange and routing key before Spring's recoverer published the message again.

    An empty text is a name too: that of the default exchange.
    """
    return _name(headers.get(SPRING_EXCHANGE)), _name(headers.get(SPRING_ROUTING_KEY))


def _redrive(headers: Mapping[str, object], general_type: str) -> Failure | None:
    return _failure(
        _text(headers, own.ERROR_TYPE),
        _text(headers, own.ERROR_REASON),
        _text(headers, own.ERROR_STACK),
        general_type,
    )


def _spring(headers: Mapping[str, object], general_type: str) -> Failure | None:
    stack = _text(headers, SPRING_STACK)
    error_type, message = _thrown(stack) if stack else ("", "")
    return _failure(error_type, _text(headers, SPRING_MESSAGE) or message, stack, general_type)


def _masstransit(headers: Mapping[str, object], general_type: str) -> Failure | None:
    fault = _failure(
        _text(headers, MASSTRANSIT_TYPE),
        _text(headers, MASSTRANSIT_MESSAGE),
        _text(headers, MASSTRANSIT_STACK),
        general_type,
    )
    if fault:
        return fault
    # A message that no consumer of the endpoint takes is set aside without an exception.
    set_aside = _text(headers, MASSTRANSIT_REASON)
    if not set_aside:
        return None
    return _failure("", f"set aside by MassTransit: {set_aside}", "", general_type)


def _nservicebus(headers: Mapping[str, object], general_type: str) -> Failure | None:
    error_type = _text(headers, NSERVICEBUS_TYPE)
    if not error_type or error_type in _WRAPPERS:
        error_type = _text(headers, NSERVICEBUS_INNER_TYPE) or error_type
    return _failure(
        error_type,
        _text(headers, NSERVICEBUS_MESSAGE),
        _text(headers, NSERVICEBUS_STACK),
        general_type,
    )


def _celery(
    headers: Mapping[str, object],
    general_type: str,
    death_reason: str | None,
    redrives: Failure | None,
) -> Failure | None:
    task = _text(headers, CELERY_TASK)
    if not task or not _text(headers, CELERY_ID) or not any(k in headers for k in _CELERYS_OWN):
        return None
    if redrives:
        return _failure(
            redrives.error_type,
            f"Celery task {task}: {redrives.reason}",
            redrives.stack or "",
            general_type,
        )
    retries = headers.get(CELERY_RETRIES)
    times = retries if type(retries) is int and 0 <= retries < 2**63 else 0
    what = _CELERY.get(death_reason or "", "failed")
    return _failure("", f"Celery task {task} {what} after {times} retries", "", general_type)


def _failure(error_type: str, reason: str, stack: str, general_type: str) -> Failure | None:
    """The failure that these tell of; what is missing is put in general words."""
    if not (error_type or reason or stack):
        return None
    return Failure(
        error_type=_cut(error_type or general_type, MAX_TYPE),
        reason=_cut_bytes(reason or f"{error_type or 'an error'} without a message", MAX_REASON),
        stack=_cut_middle(stack, MAX_STACK) if stack else None,
    )


def _thrown(stack: str) -> tuple[str, str]:
    """Class and message of the exception that a Java stack trace begins with.

    Of the exception with which Spring wraps every listener's, those of the root cause. Spring cuts
    a trace that is too long for the broker, maybe within a class name: the cause before counts.
    """
    top = _JAVA_CLASS.match(stack)
    if top is None or not ("." in top[1] or top[1].endswith(("Exception", "Error"))):
        return "", ""
    if top[1].endswith(_SPRINGS_WRAPPER):
        at = len(stack)
        while (at := stack.rfind(_CAUSE, 0, at)) >= 0:
            cause = _JAVA_CLASS.match(stack, at + len(_CAUSE))
            if cause and (cause[2] is not None or cause.end() < len(stack)):
                top = cause
                break
    return top[1], (top[2] or "").strip()


def _is_address(text: str) -> bool:
    return "://" in text or text.lstrip().startswith("queue:")


def _queue_of(address: str) -> str | None:
    """The queue of `rabbitmq://host/vhost/queue?durable=true` or `queue:name`."""
    path = address.strip().partition("?")[0].partition("#")[0]
    if path.startswith("queue:"):
        return _name(path.removeprefix("queue:")) or None
    _host, _slash, rest = path.partition("://")[2].partition("/")
    return _name(rest.rstrip("/").rpartition("/")[2]) or None


def _name(value: object) -> str | None:
    """A name as it is: one that cannot be a name in AMQP, or be stored, names nothing."""
    if not isinstance(value, str) or _UNSTORABLE.search(value):
        return None
    return value if len(value.encode()) <= MAX_NAME else None


def _text(headers: Mapping[str, object], key: str) -> str:
    """A header's text, storable; empty where there is none."""
    value = headers.get(key)
    if not isinstance(value, str):
        return ""
    # One far too long loses its middle before any work on it; the cut that follows marks it.
    if len(value) > 2 * MAX_STACK:
        value = value[:MAX_STACK] + value[-MAX_STACK:]
    return _UNSTORABLE.sub("\ufffd", value).strip()


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - len(CUT)] + CUT


def _cut_bytes(text: str, size: int) -> str:
    if len(text) * 4 <= size or len(encoded := text.encode()) <= size:
        return text
    return encoded[: size - len(CUT.encode())].decode(errors="ignore") + CUT


def _cut_middle(text: str, size: int) -> str:
    if len(text) * 4 <= size or len(encoded := text.encode()) <= size:
        return text
    half = (size - len(CUT_LINES.encode())) // 2
    head, tail = encoded[:half], encoded[-half:]
    return head.decode(errors="ignore") + CUT_LINES + tail.decode(errors="ignore")
