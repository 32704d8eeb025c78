"""Node consumers of the half that rule writers do not read."""
# ruff: noqa: E501 - a log line is as long as it is

from __future__ import annotations

import random

from tests.unit.error_corpus.templates import kind

PRISMA = """\

Invalid `tx.membership.update()` invocation in
/{{pick:app|workspace|home/node/app}}/src/memberships/renew.ts:{{int:100-900#l}}:{{int:3-40}}

  {{int:100-900}}   const price = await priceOf(plan, country);
  {{int:100-900}}
→ {{int:100-900#l}}   await tx.membership.update(
"""
PRISMA_STACK = """\
PrismaClientKnownRequestError: {{reason}}
at $n.handleRequestError (/app/node_modules/@prisma/client/runtime/library.js:{{line}}:{{int:1000-9000}})
at $n.request (/app/node_modules/@prisma/client/runtime/library.js:{{line}}:{{int:1000-9000}})
at async Proxy._transactionWithCallback (/app/node_modules/@prisma/client/runtime/library.js:{{line}}:{{int:1000-9000}})
at async renew (/{{pick:app|workspace}}/src/memberships/renew.ts:{{line}}:{{int:3-40}})
{{tail:ticks}}"""


def required(field: str) -> str:
    return f"""\
[
  {{
    "code": "invalid_type",
    "expected": "string",
    "received": "undefined",
    "path": [
      "recipients",
      {{{{int:0-900}}}},
      "{field}"
    ],
    "message": "Required"
  }}
]"""


ZOD_STACK = """\
ZodError: {{reason}}
at get error [as error] (/app/node_modules/zod/lib/types.js:{{line}}:{{int:3-40}})
at ZodObject.parse (/app/node_modules/zod/lib/types.js:{{line}}:{{int:3-40}})
at readCampaign (/app/dist/campaigns/read.js:{{line}}:{{int:3-900}})
{{tail:amqplib}}"""

INDEX_STACK = """\
ResponseError: {{reason}}
at SniffingTransport.request (/app/node_modules/@elastic/transport/lib/Transport.js:{{line}}:{{int:3-40}})
at process.processTicksAndRejections (node:internal/process/task_queues:{{line}}:{{int:3-21}})
at async Client.UpdateApi [as update] (/app/node_modules/@elastic/elasticsearch/lib/api/api/update.js:{{line}}:{{int:3-40}})
at async ClassIndex.put (/app/dist/search/class-index.js:{{line}}:{{int:3-40}})
{{tail:ticks}}"""


def unreachable(rng: random.Random) -> str:
    attempts = "".join(
        f"    Error: connect ETIMEDOUT {{{{{form}}}}}:{{{{port}}}}\n"
        "        at createConnectionError (node:net:{{line}}:{{int:3-40}})\n"
        "        at Timeout.internalConnectMultipleTimeout (node:net:{{line}}:{{int:3-40}})\n"
        for form in rng.choices(("ipv4", "ipv6"), k=rng.randint(2, 4))
    )
    return f"""\
AggregateError [ETIMEDOUT]:
at internalConnectMultiple (node:net:{{{{line}}}}:{{{{int:3-40}}}})
at listOnTimeout (node:internal/timers:{{{{line}}}}:{{{{int:3-40}}}})
at process.processTimers (node:internal/timers:{{{{line}}}}:{{{{int:3-40}}}})
at async DoorController.grant (/app/dist/doors/controller.js:{{{{line}}}}:{{{{int:3-40}}}})
at async onCheckIn (/app/dist/doors/consumer.js:{{{{line}}}}:{{{{int:3-40}}}}) {{
  code: 'ETIMEDOUT',
  [errors]: [
{attempts}  ]
}}"""


KINDS = (
    kind(
        "node-membership-gone",
        near="node-membership-transaction-expired",
        queue="memberships.renewals",
        error_type="PrismaClientKnownRequestError",
        reason=PRISMA
        + "An operation failed because it depends on one or more records that were required but not found. Record to update not found.",
        stack=PRISMA_STACK,
    ),
    kind(
        "node-membership-transaction-expired",
        near="node-membership-gone",
        queue="memberships.renewals",
        error_type="PrismaClientKnownRequestError",
        reason=PRISMA
        + "Transaction API error: Transaction already closed: A query cannot be executed on an expired transaction. The timeout for this transaction was {{int:2-20}}000 ms, however {{int:2000-60000}} ms passed since the start of the transaction.",
        stack=PRISMA_STACK,
    ),
    kind(
        "node-worker-heap",
        queue="memberships.statements",
        error_type="Error",
        reason="Worker terminated due to reaching memory limit: JS heap out of memory",
        stack="""\
Error [ERR_WORKER_OUT_OF_MEMORY]: {{reason}}
at [kOnExit] (node:internal/worker:{{line}}:{{int:3-40}})
at Worker.<computed>.onexit (node:internal/worker:{{line}}:{{int:3-40}})
at async StatementPool.run (/{{pick:app|workspace}}/dist/statements/pool.js:{{line}}:{{int:3-40}})
{{tail:ticks}}""",
    ),
    kind(
        "node-print-timeout",
        queue="memberships.cards",
        error_type="TimeoutError",
        reason="Navigation timeout of {{int:5-90}}000 ms exceeded",
        stack="""\
TimeoutError: {{reason}}
at new Deferred (/app/node_modules/puppeteer-core/lib/cjs/puppeteer/util/Deferred.js:{{line}}:{{int:3-40}})
at CdpFrame.goto (/app/node_modules/puppeteer-core/lib/cjs/puppeteer/cdp/Frame.js:{{line}}:{{int:3-40}})
at async CdpPage.setContent (/app/node_modules/puppeteer-core/lib/cjs/puppeteer/cdp/Page.js:{{line}}:{{int:3-40}})
at async printCard (file:///{{pick:app|workspace}}/dist/cards/print.mjs:{{line}}:{{int:3-40}})
{{tail:ticks}}""",
    ),
    kind(
        "node-recipient-locale",
        near="node-recipient-template",
        queue="campaigns.start",
        error_type="ZodError",
        reason=required("locale"),
        stack=ZOD_STACK,
    ),
    kind(
        "node-recipient-template",
        near="node-recipient-locale",
        queue="campaigns.start",
        error_type="ZodError",
        reason=required("templateId"),
        stack=ZOD_STACK,
    ),
    kind(
        "node-index-conflict",
        near="node-index-breaker",
        queue="search.classes",
        error_type="ResponseError",
        reason="version_conflict_engine_exception\n\tRoot causes:\n\t\tversion_conflict_engine_exception: [{{alnum:20}}]: version conflict, required seqNo [{{int}}], primary term [{{int:1-40}}]. current document has seqNo [{{int}}] and primary term [{{int:1-40}}]",
        stack=INDEX_STACK,
    ),
    kind(
        "node-index-breaker",
        near="node-index-conflict",
        queue="search.classes",
        error_type="ResponseError",
        reason="circuit_breaking_exception\n\tRoot causes:\n\t\tcircuit_breaking_exception: [parent] Data too large, data for [<http_request>] would be [{{int:1000000000-9000000000}}/{{int:1-8}}.{{int:1-9}}gb], which is larger than the limit of [{{int:1000000000-9000000000}}/{{int:1-8}}.{{int:1-9}}gb], real usage: [{{int:1000000000-9000000000}}/{{int:1-8}}.{{int:1-9}}gb], new bytes reserved: [{{int:100-9000}}/{{int:1-9}}.{{int:1-9}}kb]",
        stack=INDEX_STACK,
    ),
    kind(
        "node-door-unreachable",
        queue="doors.check-ins",
        error_type="AggregateError",
        reason="",
        stack=unreachable,
    ),
)
