"""Go consumers: wrapped errors, panics with their goroutines."""
# ruff: noqa: E501 - a log line is as long as it is

from __future__ import annotations

from tests.unit.error_corpus.templates import kind

DIAL = 'process shipment {{int}}: quote rates: Post "https://{{host}}:{{port#p}}/v2/quotes?{{query}}": dial tcp {{pick:10.2.0.|10.14.3.|192.168.7.}}{{int:1-254}}:{{port#p}}: connect: connection refused'

KINDS = (
    kind(
        "go-rates-refused-standard",
        near="go-rates-refused-express",
        queue="shipments.standard",
        error_type="*url.Error",
        reason=DIAL,
    ),
    kind(
        "go-rates-refused-express",
        near="go-rates-refused-standard",
        queue="shipments.express",
        error_type="*url.Error",
        reason=DIAL,
    ),
    kind(
        "go-ledger-serialization",
        near="go-ledger-lock-timeout",
        queue="ledger.entries",
        error_type="*ledger.WriteError",
        reason="ledger: write entry {{ulid}}: tx {{int}} failed after {{int:2-9}} attempts in {{dur}} (sqlstate 40001)",
    ),
    kind(
        "go-ledger-lock-timeout",
        near="go-ledger-serialization",
        queue="ledger.entries",
        error_type="*ledger.WriteError",
        reason="ledger: write entry {{ulid}}: tx {{int}} failed after {{int:2-9}} attempts in {{dur}} (sqlstate 55P03)",
    ),
    kind(
        "go-panic-index",
        queue="shipments.tracking",
        error_type="runtime.boundsError",
        reason="runtime error: index out of range [{{int:1-90}}] with length {{int:0-90}}",
        stack="""\
panic: {{reason}} [recovered]
	panic: {{reason}}

goroutine {{int:17-90000}} [running]:
runtime/debug.Stack()
	/usr/local/go/src/runtime/debug/stack.go:{{line}} +0x{{hex:2}}
panic({0x{{hex:6}}?, 0xc000{{hex:6}}?})
	/usr/local/go/src/runtime/panic.go:{{line}} +0x{{hex:3}}
github.com/parcelo/tracker/internal/edi.(*Segment).Element(...)
	/{{pick:src|build|home/ci/go/src/tracker}}/internal/edi/segment.go:{{line}}
github.com/parcelo/tracker/internal/edi.ParseStatus({0xc000{{hex:6}}, 0x{{hex:3}}, 0x{{hex:3}}})
	/src/internal/edi/status.go:{{line}} +0x{{hex:3}}
{{tail:goworker}}""",
    ),
    kind(
        "go-panic-nil-map",
        queue="shipments.tracking",
        error_type="runtime.plainError",
        reason="assignment to entry in nil map",
        stack="""\
panic: assignment to entry in nil map

goroutine {{int:17-90000}} [running{{pick:, locked to thread|}}]:
github.com/parcelo/tracker/internal/eta.(*Cache).put(0xc000{{hex:6}}, {0xc000{{hex:6}}, 0x{{hex:2}}}, {0x{{hex:8}}, 0xed{{hex:7}}, 0x{{hex:6}}})
	/src/internal/eta/cache.go:{{line}} +0x{{hex:3}}
github.com/parcelo/tracker/internal/eta.(*Estimator).Handle.func{{int:1-4}}()
	/src/internal/eta/estimator.go:{{line}} +0x{{hex:3}}
{{tail:goworker}}""",
    ),
)
