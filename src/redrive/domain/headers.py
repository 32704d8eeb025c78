"""The names of the headers that matter to Redrive: its own, and the broker's."""

from __future__ import annotations

from typing import Final

ID: Final = "redrive-id"
ATTEMPT: Final = "redrive-attempt"
QUEUE: Final = "redrive-queue"
EXCHANGE: Final = "redrive-exchange"
ROUTING_KEY: Final = "redrive-routing-key"
FIRST_FAILED_AT: Final = "redrive-first-failed-at"
DEATHS: Final = "redrive-deaths"
REDELIVERED: Final = "redrive-redelivered"
LETTER: Final = "redrive-letter"
GENERATION: Final = "redrive-generation"
PARENT: Final = "redrive-parent"
ERROR_TYPE: Final = "redrive-error-type"
ERROR_REASON: Final = "redrive-error-reason"
ERROR_STACK: Final = "redrive-error-stack"
USER_ID: Final = "redrive-user-id"
EXPIRATION: Final = "redrive-expiration"
CC: Final = "redrive-cc"
BCC: Final = "redrive-bcc"
NOT_BEFORE: Final = "redrive-not-before"
CRASHES: Final = "redrive-crashes"
UNNAMED: Final = "redrive-unnamed"
REFUSED: Final = "redrive-refused"
BY_EXCHANGE: Final = "redrive-by-exchange"
TAGS: Final = "redrive-tags"
"""Set by producers, not by Redrive: comma separated."""

WRITTEN: Final = (
    ID,
    ATTEMPT,
    QUEUE,
    EXCHANGE,
    ROUTING_KEY,
    FIRST_FAILED_AT,
    DEATHS,
    REDELIVERED,
    LETTER,
    GENERATION,
    PARENT,
    ERROR_TYPE,
    ERROR_REASON,
    ERROR_STACK,
    USER_ID,
    EXPIRATION,
    CC,
    BCC,
    NOT_BEFORE,
    CRASHES,
    UNNAMED,
    REFUSED,
    BY_EXCHANGE,
)
"""Every header that Redrive may write."""

X_DEATH: Final = "x-death"

BROKERS_OWN: Final = (
    X_DEATH,
    "x-first-death-exchange",
    "x-first-death-queue",
    "x-first-death-reason",
    "x-last-death-exchange",
    "x-last-death-queue",
    "x-last-death-reason",
    "x-delivery-count",
    "x-acquired-count",
)
"""Headers that the broker adds on its own: no publisher set them, so none is published again."""

MAX_DEATHS: Final = 20
"""How many deaths are carried along; of more, the newest."""
