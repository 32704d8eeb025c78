"""Errors as text alone, of the half that rule writers do not read."""
# ruff: noqa: E501 - a log line is as long as it is

from __future__ import annotations

from tests.unit.error_corpus.templates import kind

KINDS = (
    kind(
        "text-portuguese-tax-id",
        queue="fiscal.notas",
        error_type="",
        reason="Não foi possível emitir a nota fiscal nº {{int}} (série {{int:1-9}}) de R$ {{amount:german}}: CNPJ {{digits:2}}.{{digits:3}}.{{digits:3}}/0001-{{digits:2}} inválido ou inativo, protocolo {{digits:15}} em {{dmy}} {{int:10-23}}h{{int:10-59}}",
    ),
    kind(
        "text-japanese-stock",
        queue="zaiko.hikiate",
        error_type="InsufficientStock",
        reason="在庫が不足しています: 商品コード={{upper:2}}-{{digits:5}}、要求数={{int:2-900}}、在庫数={{int:0-90}}、倉庫={{digits:3}} ({{iso}})",
    ),
    kind(
        "text-mailbox-unknown",
        near="text-mailbox-full",
        queue="mail.outbound",
        error_type="SmtpError",
        reason="550 5.1.1 <{{email}}>: Recipient address rejected (mx {{host}}[{{ipv4}}], queued as {{hex:10}}, {{rfc2822}})",
    ),
    kind(
        "text-mailbox-full",
        near="text-mailbox-unknown",
        queue="mail.outbound",
        error_type="SmtpError",
        reason="552 5.2.2 <{{email}}>: Recipient address rejected (mx {{host}}[{{ipv4}}], queued as {{hex:10}}, {{rfc2822}})",
    ),
    kind(
        "text-schema-price",
        queue="offers.inbound",
        error_type="",
        reason='schema offer/v{{int:3-4}} violated at $.items[{{int:0-99}}].price.value: expected number, got string "{{amount}} {{cur}}"; document {{json}}',
    ),
    kind(
        "text-refund-over-limit",
        queue="payments.refunds",
        error_type="RefundRefused",
        reason='Refund {{id:re}} of {{cur}} {{amount:grouped}} exceeds what is left of payment {{id:pi}} ({{pct}} already returned; limit resets {{epoch}}; agent "{{person}}"; session {{jwt}})',
    ),
    kind(
        "text-disk-quota",
        queue="archive.blobs",
        error_type="QuotaExceeded",
        reason="{{logtime}} WARN  [{{pod:archiver}}/pool-{{int:1-9}}-thread-{{int:1-99}}] write of {{size}} to {{upath:zip}} refused after {{dur}}: quota of volume exceeded ({{pct}} used, inode {{int}})",
    ),
)
