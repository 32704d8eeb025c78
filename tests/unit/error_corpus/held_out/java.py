"""Java consumers of the half that rule writers do not read."""
# ruff: noqa: E501 - a log line is as long as it is

from __future__ import annotations

from tests.unit.error_corpus.held_out.tails import KAFKA_LOOP, followed_by
from tests.unit.error_corpus.templates import kind


def undecodable(part: str) -> str:
    return (
        f"Error deserializing {part} for partition settlements.v2-{{{{int:0-47}}}} at offset {{{{int:1000-99999999}}}}. "
        "If needed, please seek past the record to continue consumption."
    )


UNDECODABLE_STACK = followed_by(
    """\
org.apache.kafka.common.errors.RecordDeserializationException: {{reason}}
at org.apache.kafka.clients.consumer.internals.CompletedFetch.newRecordDeserializationException(CompletedFetch.java:{{line}})
at org.apache.kafka.clients.consumer.internals.CompletedFetch.parseRecord(CompletedFetch.java:{{line}})
at org.apache.kafka.clients.consumer.internals.FetchCollector.collectFetch(FetchCollector.java:{{line}})
at org.apache.kafka.clients.consumer.KafkaConsumer.poll(KafkaConsumer.java:{{line}})""",
    KAFKA_LOOP,
    """\
Caused by: org.apache.kafka.common.errors.SerializationException: Unknown magic byte!
at io.confluent.kafka.serializers.AbstractKafkaSchemaSerDe.getByteBuffer(AbstractKafkaSchemaSerDe.java:{{line}})
... {{int:8-20}} more""",
)


def scoring(status: str) -> str:
    return f"{status}: scoring of {{{{id:txn}}}} on {{{{host}}}}/{{{{ipv4}}}}:{{{{port}}}} ended after {{{{dur}}}}"


SCORING_STACK = """\
io.grpc.StatusRuntimeException: {{reason}}
at io.grpc.stub.ClientCalls.toStatusRuntimeException(ClientCalls.java:{{line}})
at io.grpc.stub.ClientCalls.blockingUnaryCall(ClientCalls.java:{{line}})
at eu.nordpay.fraud.v1.ScoringGrpc$ScoringBlockingStub.score(ScoringGrpc.java:{{line}})
at eu.nordpay.acquiring.risk.RemoteScorer.score(RemoteScorer.java:{{line}})
at eu.nordpay.acquiring.AuthorisationListener.lambda$on${{int:0-7}}(AuthorisationListener.java:{{line}})
{{tail:pool}}"""


def unexpected_element(element: str, expected: str) -> str:
    schema = "urn:iso:std:iso:20022:tech:xsd:pain.001.001.09"
    return (
        "org.xml.sax.SAXParseException; systemId: file:{{upath:xml}}; lineNumber: {{int:3-90000}}; columnNumber: {{int:2-400}}; "
        "cvc-complex-type.2.4.a: Invalid content was found starting with element "
        f"'{{\"{schema}\":{element}}}'. One of '{{\"{schema}\":{expected}}}' is expected."
    )


XSD_STACK = """\
jakarta.xml.bind.UnmarshalException
 - with linked exception:
[{{reason}}]
at org.glassfish.jaxb.runtime.v2.runtime.unmarshaller.UnmarshallerImpl.handleStreamException(UnmarshallerImpl.java:{{line}})
at eu.nordpay.files.PainReader.read(PainReader.java:{{line}})
at eu.nordpay.files.PaymentFileListener.onFile(PaymentFileListener.java:{{line}})
{{tail:reflect}}
Caused by: {{reason}}
at java.xml/com.sun.org.apache.xerces.internal.impl.xs.XMLSchemaValidator.reportSchemaError(XMLSchemaValidator.java:{{line}})
at java.xml/com.sun.org.apache.xerces.internal.impl.XMLNSDocumentScannerImpl.scanStartElement(XMLNSDocumentScannerImpl.java:{{line}})
... {{int:8-31}} more"""


def unmapped(field: str, type_: str) -> str:
    return (
        "Elasticsearch exception [type=document_parsing_exception, reason=[{{int:1-9}}:{{int:20-9000}}] failed to parse field "
        f"[{field}] of type [{type_}] in document with id '{{{{alnum:20}}}}'. Preview of field's value: '{{{{input}}}}']"
    )


def bind_refused(data: str) -> str:
    return (
        "[LDAP: error code 49 - 80090308: LdapErr: DSID-0C09{{pick:0447|03A9|042F|0569|0449|041C|050E|0453}}, comment: AcceptSecurityContext error, "
        f"data {data}, v{{{{pick:2580|3839|4563|4f7c|23f0}}}}\0]; resolving CN={{{{person}}}},OU=Staff,DC={{{{pick:corp|emea|apac}}}},DC=local"
    )


BIND_STACK = """\
org.springframework.ldap.AuthenticationException: {{reason}}
at org.springframework.ldap.support.LdapUtils.convertLdapException(LdapUtils.java:{{line}})
at org.springframework.ldap.core.support.AbstractContextSource.getContext(AbstractContextSource.java:{{line}})
at eu.nordpay.access.DirectorySync.bind(DirectorySync.java:{{line}})
at eu.nordpay.access.JoinerConsumer.handle(JoinerConsumer.java:{{line}})
{{tail:reflect}}
Caused by: javax.naming.AuthenticationException: {{reason}}
at java.naming/com.sun.jndi.ldap.LdapCtx.mapErrorCode(LdapCtx.java:{{line}})
... {{int:14-50}} more"""

KINDS = (
    kind(
        "java-undecodable-key",
        near="java-undecodable-value",
        queue="settlements.v2",
        error_type="org.apache.kafka.common.errors.RecordDeserializationException",
        reason=undecodable("KEY"),
        stack=UNDECODABLE_STACK,
    ),
    kind(
        "java-undecodable-value",
        near="java-undecodable-key",
        queue="settlements.v2",
        error_type="org.apache.kafka.common.errors.RecordDeserializationException",
        reason=undecodable("VALUE"),
        stack=UNDECODABLE_STACK,
    ),
    kind(
        "java-scoring-unavailable",
        near="java-scoring-exhausted",
        queue="acquiring.authorisations",
        error_type="io.grpc.StatusRuntimeException",
        reason=scoring("UNAVAILABLE"),
        stack=SCORING_STACK,
    ),
    kind(
        "java-scoring-exhausted",
        near="java-scoring-unavailable",
        queue="acquiring.authorisations",
        error_type="io.grpc.StatusRuntimeException",
        reason=scoring("RESOURCE_EXHAUSTED"),
        stack=SCORING_STACK,
    ),
    kind(
        "java-pain-address",
        near="java-pain-agent",
        queue="files.payment-orders",
        error_type="jakarta.xml.bind.UnmarshalException",
        reason=unexpected_element("AdrLine", "Ctry"),
        stack=XSD_STACK,
    ),
    kind(
        "java-pain-agent",
        near="java-pain-address",
        queue="files.payment-orders",
        error_type="jakarta.xml.bind.UnmarshalException",
        reason=unexpected_element("BIC", "BICFI"),
        stack=XSD_STACK,
    ),
    kind(
        "java-heap-in-workbook",
        queue="files.merchant-sheets",
        error_type="java.lang.OutOfMemoryError",
        reason="Java heap space",
        stack="""\
org.springframework.amqp.rabbit.support.ListenerExecutionFailedException: Listener threw exception
{{tail:reflect}}
Caused by: java.lang.OutOfMemoryError: {{reason}}
at java.base/java.util.Arrays.copyOf(Arrays.java:{{line}})
at org.apache.xmlbeans.impl.store.Cur$CurLoadContext.attr(Cur.java:{{line}})
at org.apache.poi.xssf.usermodel.XSSFSheet.read(XSSFSheet.java:{{line}})
at org.apache.poi.xssf.usermodel.XSSFWorkbook.<init>(XSSFWorkbook.java:{{line}})
at eu.nordpay.files.sheets.MerchantSheet.open(MerchantSheet.java:{{line}})
at eu.nordpay.files.sheets.SheetListener.onSheet(SheetListener.java:{{line}})
... {{int:5-30}} more""",
    ),
    kind(
        "java-index-settled-date",
        near="java-index-fee",
        queue="search.payments",
        error_type="org.elasticsearch.ElasticsearchStatusException",
        reason=unmapped("settled_on", "date"),
    ),
    kind(
        "java-index-fee",
        near="java-index-settled-date",
        queue="search.payments",
        error_type="org.elasticsearch.ElasticsearchStatusException",
        reason=unmapped("fee.amount", "scaled_float"),
    ),
    kind(
        "java-ldap-locked",
        near="java-ldap-password-expired",
        queue="access.joiners",
        error_type="org.springframework.ldap.AuthenticationException",
        reason=bind_refused("775"),
        stack=BIND_STACK,
    ),
    kind(
        "java-ldap-password-expired",
        near="java-ldap-locked",
        queue="access.joiners",
        error_type="org.springframework.ldap.AuthenticationException",
        reason=bind_refused("532"),
        stack=BIND_STACK,
    ),
    kind(
        "java-certificate-expired",
        queue="acquiring.chargebacks",
        error_type="javax.net.ssl.SSLHandshakeException",
        reason="PKIX path validation failed: java.security.cert.CertPathValidatorException: validity check failed",
        stack="""\
org.springframework.web.client.ResourceAccessException: I/O error on POST request for "https://{{host}}:{{port}}/chargebacks/{{uuid}}": {{reason}}
at org.springframework.web.client.RestTemplate.createResourceAccessException(RestTemplate.java:{{line}})
at org.springframework.web.client.RestTemplate.doExecute(RestTemplate.java:{{line}})
at eu.nordpay.disputes.SchemeClient.submit(SchemeClient.java:{{line}})
at eu.nordpay.disputes.ChargebackListener.on(ChargebackListener.java:{{line}})
{{tail:reflect}}
Caused by: javax.net.ssl.SSLHandshakeException: {{reason}}
at java.base/sun.security.ssl.Alert.createSSLException(Alert.java:{{line}})
at java.base/sun.security.ssl.CertificateMessage$T13CertificateConsumer.checkServerCerts(CertificateMessage.java:{{line}})
... {{int:12-40}} more
Caused by: java.security.cert.CertificateExpiredException: NotAfter: {{pick:Mon Jan|Tue Mar|Thu Nov|Sun Aug}} {{int:10-28}} {{int:10-23}}:{{int:10-59}}:{{int:10-59}} {{pick:UTC|CET|CEST}} 202{{int:4-6}}
at java.base/sun.security.x509.CertificateValidity.valid(CertificateValidity.java:{{line}})
... {{int:12-40}} more""",
    ),
    kind(
        "java-soap-period-closed",
        queue="erp.journal",
        error_type="jakarta.xml.ws.soap.SOAPFaultException",
        reason="Posting period 0{{int:10-16}}/{{int:2023-2026}} is not open for account type {{pick:S|D|K|A}} (company code {{digits:4}}, document {{digits:10}}, user {{upper:7}})",
        stack="""\
jakarta.xml.ws.soap.SOAPFaultException: {{reason}}
at org.apache.cxf.jaxws.JaxWsClientProxy.mapException(JaxWsClientProxy.java:{{line}})
at org.apache.cxf.jaxws.JaxWsClientProxy.invoke(JaxWsClientProxy.java:{{line}})
at jdk.proxy2/jdk.proxy2.{{proxy}}.accDocumentPost(Unknown Source)
at eu.nordpay.erp.JournalGateway.post(JournalGateway.java:{{line}})
at eu.nordpay.erp.JournalGateway{{cglib}}.post(<generated>)
{{tail:aop}}
at eu.nordpay.erp.JournalListener.onEntry(JournalListener.java:{{line}})
{{tail:reflect}}
Caused by: org.apache.cxf.binding.soap.SoapFault: {{reason}}
at org.apache.cxf.binding.soap.interceptor.Soap11FaultInInterceptor.unmarshalFault(Soap11FaultInInterceptor.java:{{line}})
... {{int:20-60}} more""",
    ),
)
