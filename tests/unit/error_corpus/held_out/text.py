"""Errors as text alone, of the half that rule writers do not read."""
# ruff: noqa: E501 - a log line is as long as it is
# ruff: noqa: RUF001 - not every consumer speaks English

from __future__ import annotations

from tests.unit.error_corpus.templates import kind


def rejected(motif: str) -> str:
    return (
        "Prélèvement {{alnum:12}} de {{amount:german}} € sur le compte {{upper:2}}{{digits:2}} {{digits:4}} {{digits:4}} {{digits:4}} "
        f"(titulaire : {{{{person}}}}) rejeté par la banque le {{{{dmy}}}}, motif {motif}"
    )


def used_up(quota: str) -> str:
    return (
        f"429 Too Many Requests: quota '{quota}' of project {{{{pick:prj|proj}}}}-{{{{int}}}} used up "
        "({{int:100-90000#q}} of {{int:100-90000#q}}), retry in {{dur}} [request {{hex:16}}, {{rfc2822}}]"
    )


def forbidden(state: str) -> str:
    return (
        f"Order {{{{pick:SO|WEB|EDI}}}}-{{{{digits:8}}}} cannot go from {state} to INVOICED: event {{{{ulid}}}} "
        'arrived {{dur}} late (version {{int:1-40}}, by "{{person}}", at {{iso}})'
    )


KINDS = (
    kind(
        "text-french-debit-funds",
        near="text-french-debit-mandate",
        queue="sepa.rejets",
        error_type="",
        reason=rejected("AM04"),
    ),
    kind(
        "text-french-debit-mandate",
        near="text-french-debit-funds",
        queue="sepa.rejets",
        error_type="",
        reason=rejected("MD01"),
    ),
    kind(
        "text-russian-period-closed",
        queue="uchet.provodki",
        error_type="ОшибкаПроведения",
        reason="Не удалось провести документ «Реализация товаров и услуг {{digits:4}}-{{digits:6}} от {{dmy}} {{int:10-23}}:{{int:10-59}}:{{int:10-59}}» на сумму {{amount:german}} руб.: дата запрета изменения данных {{dmy}} (пользователь {{person}})",
    ),
    kind(
        "text-chinese-sms-flow-control",
        queue="duanxin.fasong",
        error_type="isv.BUSINESS_LIMIT_CONTROL",
        reason="短信发送失败：手机号 1{{digits:10}}，模板 SMS_{{digits:9}}，触发小时级流控 Permits:{{int:1-10}}（RequestId: {{uuid:upper}}，时间 {{date}} {{int:10-23}}:{{int:10-59}}）",
    ),
    kind(
        "text-quota-minute",
        near="text-quota-day",
        queue="translate.texts",
        error_type="RateLimited",
        reason=used_up("characters-per-minute"),
    ),
    kind(
        "text-quota-day",
        near="text-quota-minute",
        queue="translate.texts",
        error_type="RateLimited",
        reason=used_up("characters-per-day"),
    ),
    kind(
        "text-idoc-refused",
        queue="erp.idocs",
        error_type="IDocStatus51",
        # Some 10 KB: the status records of every segment, as many as the document has.
        reason=lambda rng: (
            "IDoc {{digits:16}} (ORDERS05, partner {{digits:10}}, {{pick:LS|KU|LI}}) in status 51, application document not posted:\n"
            + "\n".join(
                "  E1EDP01 {{digits:6}}: Material {{digits:18}} ist im Werk {{digits:4}} nicht vorgesehen (Menge {{amount:german}}, Bearbeiter {{person}}, {{dmy}})"
                for _ in range(rng.randint(90, 130))
            )
        ),
    ),
    kind(
        "text-order-cancelled",
        near="text-order-returned",
        queue="orders.states",
        error_type="IllegalTransition",
        reason=forbidden("CANCELLED"),
    ),
    kind(
        "text-order-returned",
        near="text-order-cancelled",
        queue="orders.states",
        error_type="IllegalTransition",
        reason=forbidden("RETURNED"),
    ),
    kind(
        "text-document-encrypted",
        queue="previews.render",
        error_type="ConversionFailed",
        reason='preview of "{{pick:Angebot |Contract_final (2)|scan-|Factura nº |報告書}}{{int:1-999}}.{{pick:pdf|PDF}}" ({{size}}, sha1 {{hex:40}}): page 1 of {{int:1-400}}: document is encrypted, owner password required; renderer {{pod:preview}} gave up after {{dur}}',
    ),
    kind(
        "text-sftp-denied",
        queue="exchange.uploads",
        error_type="SftpError",
        reason="""\
{{logtime}} ERROR upload {{upath:xml}} -> sftp://{{pick:edi|svc_bank|exchange}}{{int:1-40}}@{{host}}:{{pick:22|2222|10022}}/inbox
Permission denied (publickey,password).
  offered key SHA256:{{b64:32}}
  session {{uuid:plain}} closed by {{ipv4}} after {{ms}}""",
    ),
)
