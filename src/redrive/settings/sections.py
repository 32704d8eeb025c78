"""Every setting: its name, type, default and what it takes. A new section is a new class here.

Guarantees: a `Settings` that exists is complete and right, cannot be changed, and neither its repr
nor its dump holds a password. Only `redrive.settings.load` makes one, because some defaults depend
on the environment; wrong values are its to report.

The name of a section in a file is the name of its field in `Settings`; `[[policy]]`, a list of
tables, is a field with a tuple of sections. docs/reference/settings.md describes all of them, and a
test compares the two.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from redrive.domain.strategy import IMMEDIATE_DELAYS, Strategy
from redrive.settings.alerts import AlertSettings, AlertSinkSettings, why_not_alerts
from redrive.settings.section import Section
from redrive.settings.values import (
    ByteSize,
    ConnectionUrl,
    Duration,
    Expected,
    WholeNumber,
    read_absolute_path,
    read_base_name,
    read_broker_url,
    read_header_pattern,
    read_json_path,
    read_limit_of,
    read_management_url,
    read_name,
    read_numbered_name,
    read_prefix,
    read_public_url,
    read_schedule,
    read_store_url,
    read_zone,
)

_URL_HINT = "percent-encode special characters of the password"


class BrokerSettings(Section):
    """The broker, and how much of it is in our hands at a time."""

    url: Annotated[
        ConnectionUrl,
        BeforeValidator(read_broker_url),
        Expected(f"an amqp:// or amqps:// URL with a host, commas between several ({_URL_HINT})"),
    ] = ConnectionUrl("amqp://guest:guest@127.0.0.1:5672/")
    management_url: Annotated[
        ConnectionUrl | None,
        BeforeValidator(read_management_url),
        Expected(f"an http:// or https:// URL with a host ({_URL_HINT})"),
    ] = None
    prefetch: Annotated[
        WholeNumber, Field(ge=1, le=65535), Expected("a whole number from 1 to 65535")
    ] = 1000
    in_flight: Annotated[
        ByteSize,
        Field(ge=10**6, le=64 * 10**9),
        Expected("a size from 1MB to 64GB, such as '64MB' or '128MiB'"),
    ] = 64 * 10**6


class StoreSettings(Section):
    """Where letters live."""

    url: Annotated[
        ConnectionUrl,
        BeforeValidator(read_store_url),
        Expected(f"a sqlite:////absolute/path or a postgresql:// URL ({_URL_HINT})"),
    ]


_Name = Annotated[
    str,
    BeforeValidator(read_name),
    Expected("a name of 1 to 255 bytes, without braces, that does not begin with 'amq.'"),
]
_NumberedName = Annotated[
    str,
    BeforeValidator(read_numbered_name),
    Expected("a name of 1 to 255 bytes with one '{n}' for the tier's number"),
]


class TopologyNames(Section):
    """Every single name. `{n}` stands for the number of a tier, which begins with 1."""

    retry_exchange: _Name = "retry-exchange"
    retry_queue: _Name = "retry-queue"
    retry_routing_key: _Name = "retry-routing-key"
    route_delay: _Name = "route-delay"
    delay_queue: _NumberedName = "queue.delay.{n}"
    delayed_exchange: _NumberedName = "retry-exchange-{n}"
    delayed_queue: _NumberedName = "retry-queue-{n}"
    dlq_exchange: _Name = "dlq-exchange"
    dlq_queue: _Name = "dlq-queue"
    dlq_routing_key: _Name = "dlq-routing-key"
    return_exchange: _Name = "redrive-return"
    receipts_queue: _Name = "redrive-receipts"


_QUEUES = ("retry_queue", "delay_queue", "delayed_queue", "dlq_queue", "receipts_queue")
_EXCHANGES = (
    "retry_exchange",
    "route_delay",
    "delayed_exchange",
    "dlq_exchange",
    "return_exchange",
)


def _one_to_a_hundred(tiers: tuple[timedelta, ...]) -> tuple[timedelta, ...]:
    # Not by Field(min_length=…): that counts only right items, so a wrong one is reported twice.
    if not 1 <= len(tiers) <= 100:
        raise ValueError("too few or too many")
    return tiers


class TopologySettings(Section):
    """The queues and exchanges of Redrive.

    The prefix stands before the default name of every queue and exchange; a name that is set
    is taken as it is. Routing keys live inside prefixed exchanges and need no prefix.
    """

    queue_type: Annotated[Literal["quorum", "classic"], Expected("'quorum' or 'classic'")] = (
        "quorum"
    )
    tiers: Annotated[
        tuple[Annotated[Duration, Field(ge=timedelta(milliseconds=1), le=timedelta(days=49))], ...],
        AfterValidator(_one_to_a_hundred),
        Expected("1 to 100 durations from 1ms to 49d, such as ['10s', '5m', '1h30m']"),
    ] = (timedelta(seconds=10), timedelta(seconds=15), timedelta(seconds=20))
    prefix: Annotated[
        str,
        BeforeValidator(read_prefix),
        Expected("at most 100 bytes, without braces, that do not begin with 'amq.'"),
    ] = ""
    names: TopologyNames = TopologyNames()

    @model_validator(mode="after")
    def _prefix_default_names(self) -> Self:
        if self.prefix:
            prefixed = {
                key: self.prefix + getattr(self.names, key)
                for key in (*_QUEUES, *_EXCHANGES)
                if key not in self.names.model_fields_set
            }
            # Frozen to everybody else: this is the end of the model's own construction.
            object.__setattr__(self, "names", self.names.model_copy(update=prefixed))
        return self

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        for keys in (_QUEUES, _EXCHANGES):
            owners: dict[str, str] = {}
            for key in keys:
                for name in dict.fromkeys(self.of_each_tier(getattr(self.names, key))):
                    if name in owners:
                        raise ValueError(
                            f"topology.names: expected different names, got {name!r}"
                            f" for both {owners[name]} and {key}"
                        )
                    owners[name] = key
        return self

    def of_each_tier(self, name: str) -> tuple[str, ...]:
        """A name with `{n}`, for tier 1, 2, …: `of_each_tier(names.delay_queue)`."""
        return tuple(name.replace("{n}", str(tier)) for tier in range(1, len(self.tiers) + 1))


class QueueSettings(Section):
    """A queue with retry and delay queues of its own (seed 004), instead of the shared tiers."""

    name: Annotated[
        str,
        BeforeValidator(read_base_name),
        Expected("a queue's name of 1 to 240 bytes, that does not begin with 'amq.'"),
    ]
    exchange: Annotated[
        str,
        BeforeValidator(read_base_name),
        Expected("the topic exchange it is bound to: 1 to 240 bytes, not beginning with 'amq.'"),
    ]
    delay: Annotated[
        Duration | None,
        Field(ge=timedelta(milliseconds=1), le=timedelta(days=49)),
        Expected("a duration from 1ms to 49d, or nothing for a retry at once"),
    ] = None


class PolicySettings(Section):
    """The file's side of `dlq_event_config`: how often messages of a routing key are retried."""

    name: Annotated[
        str,
        Field(min_length=1, max_length=255),
        Expected("a routing key or a pattern such as 'order.*', of 1 to 255 characters"),
    ]
    max_retries: Annotated[
        WholeNumber, Field(ge=0, le=2**31 - 1), Expected("a whole number from 0 to 2147483647")
    ] = 3
    return_to: Annotated[Literal["queue", "exchange"], Expected("'queue' or 'exchange'")] = "queue"
    retry_expired: Annotated[bool, Field(strict=True), Expected("true or false")] = False


class PolicyTableSettings(Section):
    """Policies that live elsewhere: a team's own `dlq_event_config`, a properties file."""

    url: Annotated[
        ConnectionUrl | None,
        BeforeValidator(read_store_url),
        Expected(f"a sqlite:////absolute/path or a postgresql:// URL ({_URL_HINT})"),
    ] = None
    properties: Annotated[
        Path | None,
        BeforeValidator(read_absolute_path),
        Expected("the absolute path of a properties file"),
    ] = None


class CollectorSettings(Section):
    """Which dead letter queues are collected, beside the topology's own."""

    queues: Annotated[
        tuple[Annotated[str, Field(min_length=1, max_length=255)], ...],
        Expected("a list of queue names or globs, such as ['payments.dlq', 'orders.*.dead']"),
    ] = ()


_Pattern = Annotated[
    str | None,
    Field(min_length=1, max_length=1000),
    Expected("text of 1 to 1000 characters, with * and ? as wildcards, such as 'TIMEOUT*'"),
]
_PATTERNS = ("error_type", "error_reason", "queue", "routing_key")
_Strategy = Annotated[Strategy, Expected("'immediate', 'scheduled', 'conditional' or 'manual'")]


class ClassifySettings(Section):
    """A rule: letters that all its patterns match are revived by this strategy."""

    error_type: _Pattern = None
    error_reason: _Pattern = None
    queue: _Pattern = None
    routing_key: _Pattern = None
    strategy: _Strategy


class WorkerSettings(Section):
    """How letters are revived: how often, when, and what silence means."""

    poll: Annotated[
        Duration,
        Field(ge=timedelta(milliseconds=10), le=timedelta(hours=1)),
        Expected("a duration from 10ms to 1h"),
    ] = timedelta(seconds=30)
    batch: Annotated[
        WholeNumber, Field(ge=1, le=10_000), Expected("a whole number from 1 to 10000")
    ] = 10
    max_revivals: Annotated[
        WholeNumber, Field(ge=0, le=1000), Expected("a whole number from 0 to 1000")
    ] = 5
    verdict_after: Annotated[
        Duration,
        Field(ge=timedelta(milliseconds=10), le=timedelta(days=30)),
        Expected("a duration from 10ms to 30d"),
    ] = timedelta(minutes=10)
    lease: Annotated[
        Duration,
        Field(ge=timedelta(seconds=1), le=timedelta(hours=1)),
        Expected("a duration from 1s to 1h"),
    ] = timedelta(seconds=60)
    default_strategy: _Strategy = Strategy.MANUAL
    delays: Annotated[
        tuple[
            Annotated[Duration, Field(ge=timedelta(milliseconds=1), le=timedelta(days=365))], ...
        ],
        AfterValidator(_one_to_a_hundred),
        Expected("1 to 100 durations from 1ms to 365d, such as ['1m', '5m', '1h']"),
    ] = IMMEDIATE_DELAYS
    schedule: Annotated[
        str,
        BeforeValidator(read_schedule),
        Expected(
            "a cron expression of five fields that fires, such as '0 2,3,4 * * *',"
            " or hours such as [2, 3, 4]"
        ),
    ] = "0 2,3,4 * * *"
    zone: Annotated[
        str,
        BeforeValidator(read_zone),
        Expected("the name of a time zone, such as 'UTC' or 'Europe/Berlin'"),
    ] = "UTC"


_Period = Annotated[
    Duration,
    Field(ge=timedelta(seconds=1), le=timedelta(days=36500)),
    Expected("a duration from 1s to 36500d, such as '90d'"),
]


class RetentionSettings(Section):
    """How long letters are kept that nobody has to do anything about, and where they go then."""

    resolved: _Period = timedelta(days=30)
    failed: _Period = timedelta(days=90)
    archived: _Period = timedelta(days=365)
    cold_storage: Annotated[
        Path | None,
        BeforeValidator(read_absolute_path),
        Expected("the absolute path of a folder, or in a file one that is relative to that file"),
    ] = None


class SweepSettings(Section):
    """What `redrive sweep` does where the command line does not say otherwise."""

    queues: Annotated[
        tuple[Annotated[str, Field(min_length=1, max_length=255)], ...],
        Expected("a list of queue names or globs, such as ['payments.dlq', 'dlq.*']"),
    ] = ()
    target: Annotated[
        str,
        Field(min_length=1, max_length=255),
        Expected("a queue's name, or a pattern such as 'dead.*', of 1 to 255 characters"),
    ] = "permanent_failure_queue"
    max_retries: Annotated[
        WholeNumber, Field(ge=0, le=2**31 - 1), Expected("a whole number from 0 to 2147483647")
    ] = 3
    max_retries_of: Annotated[
        tuple[Annotated[str, BeforeValidator(read_limit_of)], ...],
        Expected("a list of limits such as ['dlq.orders=5', 'dlq.*=2']"),
    ] = ()
    count_by: Annotated[
        Literal["largest", "header", "deaths", "deliveries"],
        Expected("'largest', 'header', 'deaths' or 'deliveries'"),
    ] = "largest"
    create: Annotated[bool, Expected("true or false")] = True
    watch: Annotated[
        Duration | None,
        Field(ge=timedelta(seconds=1), le=timedelta(days=365)),
        Expected("a duration from 1s to 365d, or nothing for one pass"),
    ] = None


class RedactionSettings(Section):
    """What is hidden of messages wherever people see them; stored and sent is the original."""

    headers: Annotated[
        tuple[Annotated[str, BeforeValidator(read_header_pattern)], ...],
        Expected("names of headers, with * and ? as wildcards, such as ['cookie', '*token*']"),
    ] = (
        "*authorization",
        "cookie",
        "set-cookie",
        "*password*",
        "*secret*",
        "*token*",
        "*api-key*",
        "*api_key*",
        "*apikey*",
    )
    json_paths: Annotated[
        tuple[Annotated[str, BeforeValidator(read_json_path)], ...],
        Expected("JSONPath queries, such as ['$.card.number', '$..password']"),
    ] = ()


class ServerSettings(Section):
    """The API: where it listens, and what people may see."""

    host: Annotated[
        str,
        Field(min_length=1, max_length=255, pattern=r"^[A-Za-z0-9.:_%-]+$"),
        Expected("a host name or an address to listen on, such as '127.0.0.1' or '0.0.0.0'"),
    ] = "127.0.0.1"
    port: Annotated[
        WholeNumber, Field(ge=0, le=65535), Expected("a whole number from 0 to 65535")
    ] = 8025
    session: Annotated[
        Duration,
        Field(ge=timedelta(minutes=1), le=timedelta(days=90)),
        Expected("a duration from 1m to 90d"),
    ] = timedelta(hours=12)
    trusted_proxies: Annotated[
        tuple[Annotated[str, Field(max_length=50, pattern=r"^[0-9A-Fa-f.:/]+$")], ...],
        Expected("a list of addresses or networks, such as ['127.0.0.1', '10.0.0.0/8']"),
    ] = ()
    audit_views: Annotated[bool, Expected("true or false")] = False
    originals_for_admin: Annotated[bool, Expected("true or false")] = False
    public_url: Annotated[
        str | None,
        BeforeValidator(read_public_url),
        Expected("an http:// or https:// URL, as people reach the server"),
    ] = None


class Settings(Section):
    """All of them. Field names are the names of the file's sections."""

    broker: BrokerSettings = BrokerSettings()
    store: StoreSettings
    topology: TopologySettings = TopologySettings()
    policy: Annotated[
        tuple[PolicySettings, ...], Expected("a list of tables, each with a 'name'")
    ] = ()
    policy_table: PolicyTableSettings = PolicyTableSettings()
    queue: Annotated[
        tuple[QueueSettings, ...],
        Expected("a list of tables, each with a 'name' and an 'exchange'"),
    ] = ()
    collector: CollectorSettings = CollectorSettings()
    classify: Annotated[
        tuple[ClassifySettings, ...],
        Expected("a list of tables, each with a 'strategy' and a pattern or more"),
    ] = ()
    worker: WorkerSettings = WorkerSettings()
    retention: RetentionSettings = RetentionSettings()
    sweep: SweepSettings = SweepSettings()
    redaction: RedactionSettings = RedactionSettings()
    server: ServerSettings = ServerSettings()
    alert: Annotated[
        tuple[AlertSettings, ...], Expected("a list of tables, each with a 'name'")
    ] = ()
    alert_sink: Annotated[
        tuple[AlertSinkSettings, ...],
        Expected("a list of tables, each with a 'name', a 'kind' and a 'url'"),
    ] = ()

    @model_validator(mode="after")
    def _policies_differ(self) -> Self:
        seen: set[str] = set()
        for policy in self.policy:
            if policy.name in seen:
                raise ValueError(f"policy: expected every name once, got {policy.name!r} twice")
            seen.add(policy.name)
        return self

    @model_validator(mode="after")
    def _alerts_are_right(self) -> Self:
        if (problem := why_not_alerts(self.alert, self.alert_sink)) is not None:
            raise ValueError(problem)
        return self

    @model_validator(mode="after")
    def _rules_have_patterns(self) -> Self:
        for number, rule in enumerate(self.classify):
            if all(getattr(rule, pattern) is None for pattern in _PATTERNS):
                raise ValueError(
                    f"classify[{number}]: expected at least one of {', '.join(_PATTERNS)}, got none"
                )
        return self
