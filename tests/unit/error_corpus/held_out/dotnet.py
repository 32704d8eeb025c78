""".NET consumers of the half that rule writers do not read."""
# ruff: noqa: E501 - a log line is as long as it is

from __future__ import annotations

from tests.unit.error_corpus.templates import kind

STRIPE_STACK = """\
Stripe.StripeException: {{reason}}
at Stripe.StripeClient.ProcessResponse[T](StripeResponse response)
at Stripe.StripeClient.RequestAsync[T](HttpMethod method, String path, BaseOptions options, RequestOptions requestOptions, CancellationToken cancellationToken)
at Kestral.Subscriptions.Charging.Charger.ChargeAsync(Renewal renewal, CancellationToken ct) in {{pick:/src|/build|D:\\a\\_work\\3\\s}}/Subscriptions/Charging/Charger.cs:line {{line}}
at Kestral.Subscriptions.Charging.RenewalDueConsumer.<Consume>d__{{int:2-17}}.MoveNext() in /src/Subscriptions/Charging/RenewalDueConsumer.cs:line {{line}}
--- End of stack trace from previous location ---
{{tail:masstransit}}"""


def inconvertible(type_: str, field: str) -> str:
    return (
        f"The JSON value could not be converted to {type_}. Path: $.lines[{{{{int:0-250}}}}].{field} "
        "| LineNumber: {{int:0-900}} | BytePositionInLine: {{int:4-70000}}."
    )


JSON_STACK = """\
System.Text.Json.JsonException: {{reason}}
 ---> System.FormatException: The JSON value is not in a supported format.
at System.Text.Json.Utf8JsonReader.ThrowFormatException()
   --- End of inner exception stack trace ---
at System.Text.Json.ThrowHelper.ReThrowWithPath(ReadStack& state, Utf8JsonReader& reader, Exception ex)
at System.Text.Json.JsonSerializer.Deserialize[TValue](ReadOnlySpan`1 utf8Json, JsonSerializerOptions options)
at Kestral.Procurement.Inbound.PurchaseOrderReader.Read(ReadOnlyMemory`1 body) in /src/Procurement/Inbound/PurchaseOrderReader.cs:line {{line}}
at Kestral.Procurement.Inbound.PurchaseOrderHandler.HandleAsync(BasicDeliverEventArgs args) in /src/Procurement/Inbound/PurchaseOrderHandler.cs:line {{line}}"""


def blob(status: str, code: str, text: str) -> str:
    return f"""\
{text}
RequestId:{{{{uuid#r}}}}
Time:{{{{iso#t}}}}
Status: {status} ({text})
ErrorCode: {code}

Content:
<?xml version="1.0" encoding="utf-8"?><Error><Code>{code}</Code><Message>{text}
RequestId:{{{{uuid#r}}}}
Time:{{{{iso#t}}}}</Message></Error>

Headers:
Server: Windows-Azure-Blob/1.0,Microsoft-HTTPAPI/2.0
x-ms-request-id: {{{{uuid#r}}}}
x-ms-client-request-id: {{{{uuid}}}}
Date: {{{{rfc2822}}}}
Content-Length: {{{{int:200-260}}}}
"""


KINDS = (
    kind(
        "dotnet-no-such-payment-method",
        near="dotnet-no-such-customer",
        queue="subscriptions-renewal-due",
        error_type="Stripe.StripeException",
        reason="No such payment_method: '{{id:pm}}'; a similar object exists in test mode, but a live mode key was used to make this request.",
        stack=STRIPE_STACK,
    ),
    kind(
        "dotnet-no-such-customer",
        near="dotnet-no-such-payment-method",
        queue="subscriptions-renewal-due",
        error_type="Stripe.StripeException",
        reason="No such customer: '{{id:cus}}'; a similar object exists in test mode, but a live mode key was used to make this request.",
        stack=STRIPE_STACK,
    ),
    kind(
        "dotnet-json-article",
        near="dotnet-json-delivery",
        queue="procurement-purchase-orders",
        error_type="System.Text.Json.JsonException",
        reason=inconvertible("System.Guid", "articleId"),
        stack=JSON_STACK,
    ),
    kind(
        "dotnet-json-delivery",
        near="dotnet-json-article",
        queue="procurement-purchase-orders",
        error_type="System.Text.Json.JsonException",
        reason=inconvertible("System.DateTimeOffset", "deliverBy"),
        stack=JSON_STACK,
    ),
    kind(
        "dotnet-supplier-host-unknown",
        queue="procurement-confirmations",
        error_type="System.Net.Http.HttpRequestException",
        reason="Name or service not known ({{host}}:{{port}})",
        stack="""\
System.Net.Http.HttpRequestException: {{reason}}
 ---> System.Net.Sockets.SocketException (0xFFFDFFFF): Name or service not known
at System.Net.Sockets.Socket.AwaitableSocketAsyncEventArgs.ThrowException(SocketError error, CancellationToken cancellationToken)
at System.Net.Http.HttpConnectionPool.ConnectToTcpHostAsync(String host, Int32 port, HttpRequestMessage initialRequest, Boolean async, CancellationToken cancellationToken)
   --- End of inner exception stack trace ---
at System.Net.Http.HttpConnectionPool.AddHttp11ConnectionAsync(QueueItem queueItem)
at System.Net.Http.HttpClient.<SendAsync>g__Core|{{int:70-99}}_0(HttpRequestMessage request, HttpCompletionOption completionOption, CancellationTokenSource cts, Boolean disposeCts, CancellationTokenSource pendingRequestsCts, CancellationToken originalCancellationToken)
at Kestral.Procurement.Outbound.SupplierClient.ConfirmAsync(Confirmation confirmation) in /src/Procurement/Outbound/SupplierClient.cs:line {{line}}
at Kestral.Procurement.Outbound.ConfirmConsumer.Consume(ConsumeContext`1 context) in /src/Procurement/Outbound/ConfirmConsumer.cs:line {{line}}
{{tail:masstransit}}""",
    ),
    kind(
        "dotnet-blob-missing",
        near="dotnet-blob-leased",
        queue="documents-archive",
        error_type="Azure.RequestFailedException",
        reason=blob("404", "BlobNotFound", "The specified blob does not exist."),
    ),
    kind(
        "dotnet-blob-leased",
        near="dotnet-blob-missing",
        queue="documents-archive",
        error_type="Azure.RequestFailedException",
        reason=blob(
            "412",
            "LeaseIdMissing",
            "There is currently a lease on the blob and no lease ID was specified in the request.",
        ),
    ),
    kind(
        "dotnet-circuit-open",
        queue="subscriptions-tax",
        error_type="Polly.CircuitBreaker.BrokenCircuitException",
        reason="The circuit is now open and is not allowing calls. It can be retried after '00:00:{{int:10-59}}.{{digits:7}}'.",
        stack="""\
Polly.CircuitBreaker.BrokenCircuitException: {{reason}}
at Polly.Outcome`1.GetResultOrRethrow()
at Polly.ResiliencePipeline.ExecuteAsync[TResult](Func`2 callback, CancellationToken cancellationToken)
at Kestral.Subscriptions.Tax.VatService.<>c__DisplayClass{{int:1-9}}_0.<<RateFor>b__{{int:0-3}}>d.MoveNext() in {{pick:/src|/build}}/Subscriptions/Tax/VatService.cs:line {{line}}
--- End of stack trace from previous location ---
at Kestral.Subscriptions.Tax.TaxConsumer.Consume(ConsumeContext`1 context) in /src/Subscriptions/Tax/TaxConsumer.cs:line {{line}}
{{tail:masstransit}}""",
    ),
)
