"""Python consumers of the half that rule writers do not read."""
# ruff: noqa: E501 - a log line is as long as it is

from __future__ import annotations

import random

from tests.unit.error_corpus.templates import kind

MAIL_STACK = """\
Traceback (most recent call last):
  File "/{{pick:srv|opt/newsletter}}/newsletter/worker.py", line {{line}}, in process
    self.mailer.send(campaign, recipient)
  File "/{{pick:srv|opt/newsletter}}/newsletter/mailer.py", line {{line}}, in send
    self.ses.send_email(**request)
  File "/srv/.venv/lib/python3.{{int:10-13}}/site-packages/botocore/client.py", line {{line}}, in _api_call
    return self._make_api_call(operation_name, kwargs)
           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "/srv/.venv/lib/python3.{{int:10-13}}/site-packages/botocore/client.py", line {{line}}, in _make_api_call
    raise error_class(parsed_response, operation_name)
botocore.errorfactory.%s: {{reason}}"""

CONVERT = "Command '['soffice', '--headless', '-env:UserInstallation=file:///tmp/lo-{{hex:8}}', '--convert-to', 'pdf', '{{upath:docx}}']' "
CONVERT_STACK = """\
Traceback (most recent call last):
  File "/srv/paperwork/consumer.py", line {{line}}, in on_document
    pdf = convert(source, into=scratch)
          ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "/srv/paperwork/convert.py", line {{line}}, in convert
    subprocess.run(command, check=True, capture_output=True, timeout=LIMIT)
  File "/usr/{{pick:lib|local/lib}}/python3.{{int:10-13}}/subprocess.py", line {{line}}, in run
    raise CalledProcessError(retcode, process.args,
subprocess.CalledProcessError: {{reason}}"""

FAILED_PART = """\
  +-{{dashes}} %d ----------------
    | Traceback (most recent call last):
    |   File "/srv/ingest/fanout.py", line {{line}}, in push
    |     await bucket.put(part.key, part.body)
    |   File "/srv/.venv/lib/python3.{{int:11-13}}/site-packages/aiobotocore/httpchecksum.py", line {{line}}, in send
    |     raise IncompleteReadError(actual_bytes=got, expected_bytes=want)
    | botocore.exceptions.IncompleteReadError: {{int:0-9000000}} read, but total bytes expected is {{int:9000001-99000000}}."""


def failed_parts(rng: random.Random) -> str:
    parts = [FAILED_PART % at for at in range(1, rng.randint(2, 7))]
    parts[0] = parts[0].replace("+-{{dashes}}", "+-+---------------")
    head = """\
  + Exception Group Traceback (most recent call last):
  |   File "/srv/ingest/consumer.py", line {{line}}, in handle
  |     async with asyncio.TaskGroup() as group:
  |   File "/usr/local/lib/python3.{{int:11-13}}/asyncio/taskgroups.py", line {{line}}, in __aexit__
  |     raise BaseExceptionGroup(
  | ExceptionGroup: {{reason}}"""
    rest = (part.replace("+-{{dashes}}", "  +----------------") for part in parts)
    return "\n".join((head, *rest, "    +------------------------------------"))


KINDS = (
    kind(
        "python-ses-throttled",
        near="python-ses-unverified",
        queue="newsletter.send",
        error_type="botocore.exceptions.ClientError",
        reason="An error occurred (Throttling) when calling the SendEmail operation (reached max retries: {{int:2-9}}): Maximum sending rate exceeded.",
        stack=MAIL_STACK % "ClientError",
    ),
    kind(
        "python-ses-unverified",
        near="python-ses-throttled",
        queue="newsletter.send",
        error_type="botocore.exceptions.ClientError",
        reason="An error occurred (MessageRejected) when calling the SendEmail operation: Email address is not verified. The following identities failed the check in region {{pick:EU-WEST-1|US-EAST-1|AP-SOUTH-1}}: {{email}}, {{person}} <{{email}}>",
        stack=MAIL_STACK % "MessageRejected",
    ),
    kind(
        "python-xml-tag-mismatch",
        queue="einvoice.inbound",
        error_type="lxml.etree.XMLSyntaxError",
        reason="Opening and ending tag mismatch: Item line {{int:2-800}} and InvoiceLine, line {{int:801-4000#l}}, column {{int:2-120}} (<string>, line {{int:801-4000#l}})",
        stack="""\
Traceback (most recent call last):
  File "/srv/einvoice/consumer.py", line {{line}}, in on_invoice
    tree = parse(body)
  File "/srv/einvoice/ubl.py", line {{line}}, in parse
    return etree.fromstring(body, PARSER)
           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "src/lxml/etree.pyx", line {{int:3000-3600}}, in lxml.etree.fromstring
  File "src/lxml/parser.pxi", line {{int:1000-2000}}, in lxml.etree._parseMemoryDocument
  File "src/lxml/parser.pxi", line {{int:600-900}}, in lxml.etree._raiseParseError
  File "<string>", line {{int:801-4000#l}}
lxml.etree.XMLSyntaxError: {{reason}}""",
    ),
    kind(
        "python-csv-field-count",
        queue="pricelists.import",
        error_type="pandas.errors.ParserError",
        reason="{{path:csv}}: Error tokenizing data. C error: Expected {{int:4-40}} fields in line {{int:2-900000}}, saw {{int:41-60}}\n",
    ),
    kind(
        "python-oauth-revoked",
        queue="calendar.sync",
        error_type="google.auth.exceptions.RefreshError",
        reason="('invalid_grant: Token has been expired or revoked.', {'error': 'invalid_grant', 'error_description': 'Token has been expired or revoked.'})",
        stack="""\
Traceback (most recent call last):
  File "/srv/calendar_sync/worker.py", line {{line}}, in run
    for event in self.events(mailbox="{{email}}", since={{epoch}}):
  File "/srv/calendar_sync/google.py", line {{line}}, in events
    page = request.execute(num_retries=3)
  File "/{{pick:srv/.venv|venv}}/lib/python3.{{int:10-13}}/site-packages/googleapiclient/_helpers.py", line {{line}}, in positional_wrapper
    return wrapped(*args, **kwargs)
  File "/{{pick:srv/.venv|venv}}/lib/python3.{{int:10-13}}/site-packages/google/oauth2/_client.py", line {{line}}, in _handle_error_response
    raise exceptions.RefreshError(
google.auth.exceptions.RefreshError: {{reason}}""",
    ),
    kind(
        "python-convert-exit-77",
        near="python-convert-aborted",
        queue="paperwork.convert",
        error_type="subprocess.CalledProcessError",
        reason=CONVERT + "returned non-zero exit status 77.",
        stack=CONVERT_STACK,
    ),
    kind(
        "python-convert-aborted",
        near="python-convert-exit-77",
        queue="paperwork.convert",
        error_type="subprocess.CalledProcessError",
        reason=CONVERT + "died with <Signals.SIGABRT: 6>.",
        stack=CONVERT_STACK,
    ),
    kind(
        "python-upload-group",
        queue="ingest.parts",
        error_type="ExceptionGroup",
        reason="unhandled errors in a TaskGroup ({{pick:1 sub-exception|2 sub-exceptions|3 sub-exceptions|4 sub-exceptions|6 sub-exceptions}})",
        stack=failed_parts,
    ),
    kind(
        "python-unknown-image",
        queue="paperwork.scans",
        error_type="PIL.UnidentifiedImageError",
        reason="cannot identify image file <_io.BytesIO object at {{addr}}>",
        stack="""\
Traceback (most recent call last):
  File "/srv/paperwork/consumer.py", line {{line}}, in on_scan
    pages = [straighten(page) for page in pages_of(scan)]
  File "/srv/paperwork/scans.py", line {{line}}, in pages_of
    with Image.open(io.BytesIO(raw)) as image:
         ^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "/{{pick:srv/.venv|venv}}/lib/python3.{{int:10-13}}/site-packages/PIL/Image.py", line {{int:3000-3600}}, in open
    raise UnidentifiedImageError(msg)
PIL.UnidentifiedImageError: {{reason}}""",
    ),
    kind(
        "python-unexpected-property",
        queue="pricelists.offers",
        error_type="jsonschema.exceptions.ValidationError",
        # Some 10 KB: jsonschema quotes the instance whole.
        reason=lambda rng: (
            "Additional properties are not allowed ('discount' was unexpected)\n\n"
            "Failed validating 'additionalProperties' in schema['properties']['offers']['items']:\n"
            "    {'additionalProperties': False, 'required': ['ean', 'net'], 'type': 'object'}\n\n"
            f"On instance['offers'][{rng.randint(0, 80)}]:\n    {{'batch': '{{{{uuid}}}}',\n     'rows': ["
            + ",\n              ".join(
                "{'ean': '{{digits:13}}', 'net': {{amount}}, 'note': '{{input}}', 'seller': '{{email}}', 'valid': '{{iso}}'}"
                for _ in range(rng.randint(90, 120))
            )
            + "]}"
        ),
    ),
)
