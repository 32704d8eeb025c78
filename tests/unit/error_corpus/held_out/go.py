"""Go consumers of the half that rule writers do not read."""
# ruff: noqa: E501 - a log line is as long as it is

from __future__ import annotations

from tests.unit.error_corpus.templates import kind


def undelivered(code: str) -> str:
    return (
        "sms: message SM{{hex:32}} to +{{digits:12}} undelivered "
        f"(carrier code {code}, segment {{{{int:1-4}}}}/{{{{int:4-6}}}}, price 0.0{{{{int:10-999}}}} {{{{cur}}}}, attempt {{{{int:1-5}}}})"
    )


def lookup(outcome: str) -> str:
    return (
        'webhook {{ulid}}: Post "https://{{host#h}}/hooks/{{alnum:16}}": dial tcp: '
        f"lookup {{{{host#h}}}} on {{{{ipv4}}}}:53: {outcome}"
    )


KINDS = (
    kind(
        "go-grpc-too-large",
        queue="media.transcripts",
        error_type="*status.Error",
        reason="transcribe {{uuid}} ({{dur}} of audio): rpc error: code = ResourceExhausted desc = grpc: received message larger than max ({{int:4194305-99999999}} vs. {{pick:4194304|8388608|16777216}})",
    ),
    kind(
        "go-sms-unreachable",
        near="go-sms-unknown-number",
        queue="messaging.sms",
        error_type="*sms.DeliveryError",
        reason=undelivered("30003"),
    ),
    kind(
        "go-sms-unknown-number",
        near="go-sms-unreachable",
        queue="messaging.sms",
        error_type="*sms.DeliveryError",
        reason=undelivered("30005"),
    ),
    kind(
        "go-wrong-certificate-name",
        queue="messaging.callbacks",
        error_type="*tls.CertificateVerificationError",
        reason='callback {{ulid}}: Put "https://{{host#h}}:{{port}}/cb?{{query}}": tls: failed to verify certificate: x509: certificate is valid for {{host}}, {{host}}, not {{host#h}}',
    ),
    kind(
        "go-subject-not-text",
        queue="messaging.templates",
        error_type="*runtime.TypeAssertionError",
        reason="interface conversion: interface {} is float64, not string",
        stack="""\
panic: {{reason}} [recovered]

goroutine {{int:17-90000}} [running]:
runtime/debug.Stack()
	/usr/local/go/src/runtime/debug/stack.go:{{line}} +0x{{hex:2}}
codeberg.org/lumen/post/consumer.recovered({0xc000{{hex:6}}, 0x{{hex:2}}})
	/{{pick:drone/src|woodpecker/src/lumen/post}}/consumer/recover.go:{{line}} +0x{{hex:3}}
panic({0x{{hex:6}}?, 0xc000{{hex:6}}?})
	/usr/local/go/src/runtime/panic.go:{{line}} +0x{{hex:3}}
codeberg.org/lumen/post/template.subject(...)
	/drone/src/template/subject.go:{{line}}
codeberg.org/lumen/post/template.(*Set).Render(0xc000{{hex:6}}, {0xc000{{hex:6}}, 0x{{hex:2}}}, 0xc000{{hex:6}})
	/drone/src/template/set.go:{{line}} +0x{{hex:3}}
{{tail:goworker}}""",
    ),
    kind(
        "go-kafka-record-too-large",
        queue="messaging.audit",
        error_type="sarama.KError",
        reason="audit: flush of {{int:2-900}} records ({{size}}) to audit.events/{{int:0-63}} via broker {{int:1-12}} [{{host}}:9092]: kafka server: Message was too large, server rejected it to avoid allocation error",
    ),
    kind(
        "go-lookup-no-such-host",
        near="go-lookup-misbehaving",
        queue="messaging.webhooks",
        error_type="*net.DNSError",
        reason=lookup("no such host"),
    ),
    kind(
        "go-lookup-misbehaving",
        near="go-lookup-no-such-host",
        queue="messaging.webhooks",
        error_type="*net.DNSError",
        reason=lookup("server misbehaving"),
    ),
)
