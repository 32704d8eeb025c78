"""Rust and Elixir consumers of the half that rule writers do not read."""
# ruff: noqa: E501 - a log line is as long as it is

from __future__ import annotations

from tests.unit.error_corpus.held_out.tails import BROADWAY, followed_by, rust
from tests.unit.error_corpus.templates import kind


def missing(field: str) -> str:
    return (
        "payout {{uuid}}: error decoding response body for url (https://{{host}}/ledger/v1/payouts/{{alnum:12}}): "
        f"missing field `{field}` at line {{{{int:1-60}}}} column {{{{int:2-4000}}}}"
    )


NO_CLAUSE = """\
** (FunctionClauseError) {{reason}}
    (fleet {{int:0-4#fleet}}.{{int:0-40#fleet}}.{{int:0-9#fleet}}) lib/fleet/telemetry.ex:{{line}}: %s
    (elixir 1.{{int:14-17#elixir}}.{{int:0-4#elixir}}) lib/enum.ex:{{int:1000-4400}}: Enum."-map/2-lists^map/1-1-"/2
    (fleet {{int:0-4#fleet}}.{{int:0-40#fleet}}.{{int:0-9#fleet}}) lib/fleet/pipeline.ex:{{line}}: Fleet.Pipeline.handle_message/3"""

KINDS = (
    kind(
        "rust-no-settled-at",
        near="rust-no-fee",
        queue="payouts.confirm",
        error_type="reqwest::Error",
        reason=missing("settled_at"),
    ),
    kind(
        "rust-no-fee",
        near="rust-no-settled-at",
        queue="payouts.confirm",
        error_type="reqwest::Error",
        reason=missing("fee_minor"),
    ),
    kind(
        "rust-unwrap-sequence",
        queue="payouts.batches",
        error_type="panic",
        reason="called `Result::unwrap()` on an `Err` value: ParseIntError { kind: InvalidDigit }",
        stack=rust(
            """\
thread 'tokio-runtime-worker' panicked at {{pick:|/build/}}crates/batches/src/header.rs:{{line}}:{{int:5-60}}:
{{reason}}
stack backtrace:
   0: rust_begin_unwind
             at /rustc/{{hex:40#r}}/library/std/src/panicking.rs:{{line}}:5
   1: core::panicking::panic_fmt
             at /rustc/{{hex:40#r}}/library/core/src/panicking.rs:{{line}}:14
   2: core::result::unwrap_failed
             at /rustc/{{hex:40#r}}/library/core/src/result.rs:{{int:1000-1900}}:5
   3: batches::header::Header::sequence::h{{hex:16}}
             at ./crates/batches/src/header.rs:{{line}}:{{int:5-60}}
   4: batches::consumer::on_batch::{closure#0}::h{{hex:16}}
             at ./crates/batches/src/consumer.rs:{{line}}:{{int:5-60}}""",
            5,
        ),
    ),
    kind(
        "elixir-no-clause-decode",
        near="elixir-no-clause-unit",
        queue="fleet.telemetry",
        error_type="FunctionClauseError",
        reason="no function clause matching in Fleet.Telemetry.decode/2",
        stack=followed_by(
            NO_CLAUSE
            % "Fleet.Telemetry.decode(<<{{int:0-255}}, {{int:0-255}}, {{int:0-255}}>>, :v2)",
            BROADWAY,
        ),
    ),
    kind(
        "elixir-no-clause-unit",
        near="elixir-no-clause-decode",
        queue="fleet.telemetry",
        error_type="FunctionClauseError",
        reason="no function clause matching in Fleet.Telemetry.unit/1",
        stack=followed_by(NO_CLAUSE % 'Fleet.Telemetry.unit("{{alnum:4}}")', BROADWAY),
    ),
    kind(
        "elixir-stale-trip",
        queue="fleet.trips",
        error_type="Ecto.StaleEntryError",
        reason="""\
attempted to update a stale struct:

%Fleet.Trip{
  id: "{{uuid#t}}",
  driver: "{{person}}",
  distance_m: {{int}},
  lock_version: {{int:1-90}},
  started_at: ~U[{{date}} {{int:10-23}}:{{int:10-59}}:{{int:10-59}}Z],
  ended_at: {{pick:nil|~U[2026-01-09 11:02:44Z]}}
}
""",
        stack=followed_by(
            """\
** (Ecto.StaleEntryError) {{reason}}
    (ecto 3.{{int:9-12#ecto}}.{{int:0-6#ecto}}) lib/ecto/repo/schema.ex:{{line}}: anonymous fn/15 in Ecto.Repo.Schema.do_update/4
    (ecto 3.{{int:9-12#ecto}}.{{int:0-6#ecto}}) lib/ecto/repo/schema.ex:{{line}}: Ecto.Repo.Schema.update!/4
    (fleet {{int:0-4#fleet}}.{{int:0-40#fleet}}.{{int:0-9#fleet}}) lib/fleet/trips.ex:{{line}}: Fleet.Trips.close/2""",
            BROADWAY,
        ),
    ),
)
