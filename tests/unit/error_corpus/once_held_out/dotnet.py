""".NET consumers of the half that rule writers do not read."""
# ruff: noqa: E501 - a log line is as long as it is

from __future__ import annotations

from tests.unit.error_corpus.templates import kind

TRUNCATED_STACK = """\
Microsoft.EntityFrameworkCore.DbUpdateException: An error occurred while saving the entity changes. See the inner exception for details.
 ---> Microsoft.Data.SqlClient.SqlException (0x80131904): {{reason}}
at Microsoft.Data.SqlClient.SqlConnection.OnError(SqlException exception, Boolean breakConnection, Action`1 wrapCloseInAction)
at Microsoft.Data.SqlClient.TdsParser.TryRun(RunBehavior runBehavior, SqlCommand cmdHandler, SqlDataReader dataStream, BulkCopySimpleResultSet bulkCopyHandler, TdsParserStateObject stateObj, Boolean& dataReady)
ClientConnectionId:{{uuid}}
Error Number:2628,State:1,Class:16
   --- End of inner exception stack trace ---
at Microsoft.EntityFrameworkCore.Update.AffectedCountModificationCommandBatch.ConsumeAsync(RelationalDataReader reader, CancellationToken cancellationToken)
at Tailwind.Crm.Import.ContactWriter.<>c__DisplayClass{{int:2-9}}_0.<<UpsertAsync>b__{{int:0-3}}>d.MoveNext() in {{pick:C:\\build\\agent4\\src|/home/vsts/work/1/s}}/Crm/Import/ContactWriter.cs:line {{line}}
--- End of stack trace from previous location ---
at Tailwind.Crm.Import.ContactImportedHandler.HandleAsync(ContactImported message, CancellationToken token)
{{tail:masstransit}}"""

NULL_STACK = """\
System.ArgumentNullException: {{reason}}
at System.Linq.ThrowHelper.ThrowArgumentNullException(ExceptionArgument argument)
at System.Linq.Enumerable.Select[TSource,TResult](IEnumerable`1 source, Func`2 selector)
at Tailwind.Crm.Segments.SegmentBuilder.Build(Campaign campaign) in /src/Crm/Segments/SegmentBuilder.cs:line {{line}}
at Tailwind.Crm.Segments.CampaignConsumer.Consume(ConsumeContext`1 context) in /src/Crm/Segments/CampaignConsumer.cs:line {{line}}
{{tail:masstransit}}"""

RESPONSE_TIMEOUT = "Timeout waiting for response, RequestId: {{uuid}} (endpoint rabbitmq://{{host}}:{{port}}/{{pod:bus}}_bus_{{alnum:26}}?temporary=true, waited 00:0{{int:0-9}}:{{int:10-59}}.{{digits:7}})"

KINDS = (
    kind(
        "dotnet-truncated-phone",
        near="dotnet-truncated-city",
        queue="crm-contact-imported",
        error_type="Microsoft.Data.SqlClient.SqlException",
        reason="String or binary data would be truncated in table 'Crm.dbo.Contacts', column 'Phone'. Truncated value: '{{input}}{{digits:7}}'.\nThe statement has been terminated.",
        stack=TRUNCATED_STACK,
    ),
    kind(
        "dotnet-truncated-city",
        near="dotnet-truncated-phone",
        queue="crm-contact-imported",
        error_type="Microsoft.Data.SqlClient.SqlException",
        reason="String or binary data would be truncated in table 'Crm.dbo.Contacts', column 'City'. Truncated value: '{{input}}{{digits:7}}'.\nThe statement has been terminated.",
        stack=TRUNCATED_STACK,
    ),
    kind(
        "dotnet-null-source",
        near="dotnet-null-selector",
        queue="crm-campaigns",
        error_type="System.ArgumentNullException",
        reason="Value cannot be null. (Parameter 'source')",
        stack=NULL_STACK,
    ),
    kind(
        "dotnet-null-selector",
        near="dotnet-null-source",
        queue="crm-campaigns",
        error_type="System.ArgumentNullException",
        reason="Value cannot be null. (Parameter 'selector')",
        stack=NULL_STACK,
    ),
    kind(
        "dotnet-http-timeout",
        queue="crm-enrichment",
        error_type="System.Threading.Tasks.TaskCanceledException",
        reason="The request was canceled due to the configured HttpClient.Timeout of {{int:5-120}} seconds elapsing.",
        stack="""\
System.Threading.Tasks.TaskCanceledException: {{reason}}
 ---> System.TimeoutException: A task was canceled.
 ---> System.Threading.Tasks.TaskCanceledException: A task was canceled.
at System.Threading.Tasks.TaskCompletionSourceWithCancellation`1.WaitWithCancellationAsync(CancellationToken cancellationToken)
at System.Net.Http.HttpConnectionPool.SendWithVersionDetectionAndRetryAsync(HttpRequestMessage request, Boolean async, Boolean doRequestAuth, CancellationToken cancellationToken)
   --- End of inner exception stack trace ---
   --- End of inner exception stack trace ---
at System.Net.Http.HttpClient.HandleFailure(Exception e, Boolean telemetryStarted, HttpResponseMessage response, CancellationTokenSource cts, CancellationToken cancellationToken, CancellationTokenSource pendingRequestsCts)
at Tailwind.Crm.Enrichment.CompanyLookup.FindAsync(String vatId) in {{pick:/src|/home/vsts/work/1/s}}/Crm/Enrichment/CompanyLookup.cs:line {{line}}
at Tailwind.Crm.Enrichment.EnrichConsumer.<Consume>d__{{int:2-14}}.MoveNext()
--- End of stack trace from previous location ---
{{tail:masstransit}}""",
    ),
    kind(
        "dotnet-response-timeout-quotes",
        near="dotnet-response-timeout-renewals",
        queue="crm-quotes",
        error_type="MassTransit.RequestTimeoutException",
        reason=RESPONSE_TIMEOUT,
    ),
    kind(
        "dotnet-response-timeout-renewals",
        near="dotnet-response-timeout-quotes",
        queue="crm-renewals",
        error_type="MassTransit.RequestTimeoutException",
        reason=RESPONSE_TIMEOUT,
    ),
    kind(
        "dotnet-file-in-use",
        queue="crm-exports",
        error_type="System.IO.IOException",
        reason="The process cannot access the file '{{wpath}}' because it is being used by another process.",
        stack="""\
System.IO.IOException: {{reason}}
at Microsoft.Win32.SafeHandles.SafeFileHandle.CreateFile(String fullPath, FileMode mode, FileAccess access, FileShare share, FileOptions options)
at System.IO.Strategies.OSFileStreamStrategy..ctor(String path, FileMode mode, FileAccess access, FileShare share, FileOptions options, Int64 preallocationSize, Nullable`1 unixCreateMode)
at System.IO.File.OpenWrite(String path)
at Tailwind.Crm.Exports.SheetWriter.Append(IReadOnlyList`1 rows) in C:\\build\\agent{{int:1-9}}\\src\\Crm\\Exports\\SheetWriter.cs:line {{line}}
at Tailwind.Crm.Exports.ExportConsumer.Consume(ConsumeContext`1 context) in C:\\build\\agent{{int:1-9}}\\src\\Crm\\Exports\\ExportConsumer.cs:line {{line}}
{{tail:masstransit}}""",
    ),
)
