""".NET consumers: HttpClient, SqlClient, EF Core, MassTransit."""
# ruff: noqa: E501 - a log line is as long as it is

from __future__ import annotations

from tests.unit.error_corpus.templates import kind

HTTP_STACK = """\
System.Net.Http.HttpRequestException: {{reason}}
at System.Net.Http.HttpResponseMessage.EnsureSuccessStatusCode()
at Contoso.Billing.Tax.TaxClient.GetRateAsync(String country, CancellationToken ct) in {{pick:/src|/home/runner/work/billing|D:\\a\\1\\s}}/Billing/Tax/TaxClient.cs:line {{line}}
at Contoso.Billing.Invoices.InvoiceConsumer.<Consume>d__{{int:3-19}}.MoveNext() in /src/Billing/Invoices/InvoiceConsumer.cs:line {{line}}
--- End of stack trace from previous location ---
{{tail:masstransit}}"""

KINDS = (
    kind(
        "dotnet-tax-404",
        near="dotnet-tax-503",
        queue="invoices-to-issue",
        error_type="System.Net.Http.HttpRequestException",
        reason="Response status code does not indicate success: 404 (Not Found).",
        stack=HTTP_STACK,
    ),
    kind(
        "dotnet-tax-503",
        near="dotnet-tax-404",
        queue="invoices-to-issue",
        error_type="System.Net.Http.HttpRequestException",
        reason="Response status code does not indicate success: 503 (Service Unavailable).",
        stack=HTTP_STACK,
    ),
    kind(
        "dotnet-sql-deadlock",
        queue="invoices-to-post",
        error_type="Microsoft.Data.SqlClient.SqlException",
        reason="Transaction (Process ID {{int:50-400}}) was deadlocked on lock resources with another process and has been chosen as the deadlock victim. Rerun the transaction.",
        stack="""\
Microsoft.Data.SqlClient.SqlException (0x80131904): {{reason}}
at Microsoft.Data.SqlClient.SqlCommand.<>c.<ExecuteDbDataReaderAsync>b__{{int:100-240}}_0(Task`1 result)
at System.Threading.Tasks.ContinuationResultTaskFromResultTask`2.InnerInvoke()
at System.Threading.ExecutionContext.RunInternal(ExecutionContext executionContext, ContextCallback callback, Object state)
--- End of stack trace from previous location ---
at Microsoft.EntityFrameworkCore.Storage.RelationalCommand.ExecuteReaderAsync(RelationalCommandParameterObject parameterObject, CancellationToken cancellationToken)
at Contoso.Billing.Posting.LedgerPoster.PostAsync(Invoice invoice) in /src/Billing/Posting/LedgerPoster.cs:line {{line}}
at Contoso.Billing.Posting.PostInvoiceConsumer.Consume(ConsumeContext`1 context) in /src/Billing/Posting/PostInvoiceConsumer.cs:line {{line}}
{{tail:masstransit}}
ClientConnectionId:{{uuid}}
Error Number:1205,State:{{int:13-90}},Class:13""",
    ),
    kind(
        "dotnet-stale-row",
        queue="customers-to-merge",
        error_type="Microsoft.EntityFrameworkCore.DbUpdateConcurrencyException",
        reason="The database operation was expected to affect {{int:1-40}} row(s), but actually affected {{int:0-40}} row(s); data may have been modified or deleted since entities were loaded. See https://go.microsoft.com/fwlink/?LinkId=527962 for information on understanding and handling optimistic concurrency exceptions. [CustomerId={{uuid:any}}, RowVersion=0x{{hex:16}}]",
        stack="""\
Microsoft.EntityFrameworkCore.DbUpdateConcurrencyException: {{reason}}
at Npgsql.EntityFrameworkCore.PostgreSQL.Update.Internal.NpgsqlModificationCommandBatch.ThrowAggregateUpdateConcurrencyExceptionAsync(RelationalDataReader reader, Int32 commandIndex, Int32 expectedRowsAffected, Int32 rowsAffected)
at Microsoft.EntityFrameworkCore.DbContext.SaveChangesAsync(Boolean acceptAllChangesOnSuccess, CancellationToken cancellationToken)
at Contoso.Customers.Merging.MergeConsumer.<>c__DisplayClass{{int:2-12}}_0.<<Consume>b__{{int:0-4}}>d.MoveNext() in /src/Customers/Merging/MergeConsumer.cs:line {{line}}
--- End of stack trace from previous location ---
{{tail:masstransit}}""",
    ),
)
