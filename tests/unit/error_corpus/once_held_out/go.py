"""Go consumers of the half that rule writers do not read."""
# ruff: noqa: E501 - a log line is as long as it is

from __future__ import annotations

from tests.unit.error_corpus.templates import kind


def foreign_key(column: str) -> str:
    return (
        "store: insert booking {{uuid:plain}} (voyage {{upper:3}}{{digits:4}}): ERROR: insert or update on table "
        f'"bookings" violates foreign key constraint "bookings_{column}_fkey" (SQLSTATE 23503)'
    )


def wrong_type(field: str) -> str:
    return (
        "consumer: message {{ulid}} from {{ipv4}}:{{port}}: decode manifest v{{int:2-5}}: json: cannot unmarshal "
        f"string into Go struct field {field} of type float64"
    )


NIL_STACK = """\
panic: {{reason}}
[signal SIGSEGV: segmentation violation code=0x1 addr=0x{{hex:2}} pc=0x{{hex:6}}]

goroutine {{int:20-400000}} [running]:
%s(0x{{hex:8}}, {0x{{hex:7}}, 0xc000{{hex:6}}}, 0xc00{{hex:7}})
	/{{pick:workspace|builds/k3s/0/harbor}}/berth/%s:{{line}} +0x{{hex:3}}
gitlab.com/harbor/berth/queue.(*Consumer).loop.func{{int:1-3}}({0x{{hex:7}}, 0xc000{{hex:6}}})
	/workspace/berth/queue/consumer.go:{{line}} +0x{{hex:3}}
golang.org/x/sync/errgroup.(*Group).Go.func1()
	/go/pkg/mod/golang.org/x/sync@v0.{{int:5-12}}.0/errgroup/errgroup.go:{{line}} +0x{{hex:2}}
created by golang.org/x/sync/errgroup.(*Group).Go in goroutine {{int:1-90}}
	/go/pkg/mod/golang.org/x/sync@v0.{{int:5-12}}.0/errgroup/errgroup.go:{{line}} +0x{{hex:2}}{{maybe:
exit status 2}}"""
NIL_REASON = "runtime error: invalid memory address or nil pointer dereference"

KINDS = (
    kind(
        "go-no-such-vessel",
        near="go-no-such-shipper",
        queue="harbor.bookings",
        error_type="*pgconn.PgError",
        reason=foreign_key("vessel_id"),
    ),
    kind(
        "go-no-such-shipper",
        near="go-no-such-vessel",
        queue="harbor.bookings",
        error_type="*pgconn.PgError",
        reason=foreign_key("shipper_id"),
    ),
    kind(
        "go-weight-not-number",
        near="go-height-not-number",
        queue="harbor.manifests",
        error_type="*json.UnmarshalTypeError",
        reason=wrong_type("Container.weight_kg"),
    ),
    kind(
        "go-height-not-number",
        near="go-weight-not-number",
        queue="harbor.manifests",
        error_type="*json.UnmarshalTypeError",
        reason=wrong_type("Container.height_mm"),
    ),
    kind(
        "go-customs-deadline",
        queue="harbor.customs",
        error_type="*url.Error",
        reason='declare {{upper:4}}{{digits:7}}: customs office: Get "https://[{{ipv6}}]:{{port}}/declarations/{{uuid}}?{{query}}": context deadline exceeded (Client.Timeout exceeded while awaiting headers)',
    ),
    kind(
        "go-nil-in-crane-plan",
        near="go-nil-in-tide-table",
        queue="harbor.plans",
        error_type="runtime.errorString",
        reason=NIL_REASON,
        stack=NIL_STACK % ("gitlab.com/harbor/berth/plan.(*Crane).Assign", "plan/crane.go"),
    ),
    kind(
        "go-nil-in-tide-table",
        near="go-nil-in-crane-plan",
        queue="harbor.plans",
        error_type="runtime.errorString",
        reason=NIL_REASON,
        stack=NIL_STACK % ("gitlab.com/harbor/berth/tide.(*Table).At", "tide/table.go"),
    ),
)
