"""Errors reported as text alone, in the words of whoever wrote the consumer."""
# ruff: noqa: E501 - a log line is as long as it is

from __future__ import annotations

from tests.unit.error_corpus.templates import kind

KINDS = (
    kind(
        "text-german-cost-centre",
        queue="buchhaltung.rechnungen",
        error_type="",
        reason='Rechnung Nr. {{digits:8}} vom {{dmy}} über {{amount:german}} € konnte nicht gebucht werden: Kostenstelle {{digits:6}} ist für Buchungen gesperrt (Sachbearbeiter: "{{person}}", {{email}})',
    ),
    kind(
        "text-card-declined",
        queue="payments.capture",
        error_type="PaymentDeclined",
        reason="Capture of {{amount:grouped}} {{cur}} for {{id:cus}} declined by issuer: insufficient funds (charge {{id:ch}}, order {{id:ord}}, risk {{pct}}, request-id {{alnum:14}})",
    ),
    kind(
        "text-import-unreadable",
        queue="imports.files",
        error_type="ImportFailed",
        reason='[{{logtime}}] importer-{{int:1-16}}: cannot read "{{path:csv}}" ({{size}}) at row {{int}}, column {{int:1-60}}: unterminated quoted field near "{{input}}"',
    ),
    kind(
        "text-signature-mismatch",
        queue="webhooks.inbound",
        error_type="SignatureError",
        # Some 10 KB: the body that did not match is quoted whole.
        reason=lambda rng: (
            "Webhook signature mismatch from {{ipv4}}: expected sha256={{hex:64}}, got sha256={{hex:64}}; body="
            f"{{{{b64:{rng.randint(7000, 8200)}}}}}"
        ),
    ),
)
