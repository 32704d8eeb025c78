"""Python consumers of the half that rule writers do not read."""
# ruff: noqa: E501 - a log line is as long as it is

from __future__ import annotations

from tests.unit.error_corpus.templates import kind

NONE_STACK = """\
Traceback (most recent call last):
  File "/{{pick:usr/lib|opt/py}}/python3.{{int:11-13}}/site-packages/kombu/messaging.py", line {{line}}, in _receive_callback
    return on_m(message) if on_m else self.receive(decoded, message)
  File "/{{pick:code|home/deploy/apps/crm-38|home/deploy/apps/crm-41}}/billing/sync.py", line {{line}}, in on_company
    return Account(
           ^^^^^^^^
  File "/code/billing/sync.py", line {{line}}, in fields_of
    yield company.head_office.%s
          ^^^^^^^^^^^^^^^^^^^
AttributeError: {{reason}}"""

KINDS = (
    kind(
        "python-geocoder-timeout",
        queue="geo.lookup",
        error_type="TimeoutError",
        reason="",
        stack="""\
Traceback (most recent call last):
  File "/code/geo/client.py", line {{line}}, in locate
    return await response.json()
           ^^^^^^^^^^^^^^^^^^^^^
  File "/venv/lib/python3.{{int:11-13}}/site-packages/aiohttp/client_reqrep.py", line {{line}}, in json
    await self.read()
asyncio.exceptions.CancelledError

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/code/geo/worker.py", line {{line}}, in handle
    async with asyncio.timeout({{int:2-60}}):
  File "/usr/local/lib/python3.{{int:11-13}}/asyncio/timeouts.py", line {{line}}, in __aexit__
    raise TimeoutError from exc_val
TimeoutError""",
    ),
    kind(
        "python-none-postcode",
        near="python-none-vat",
        queue="billing.companies",
        error_type="AttributeError",
        reason="'NoneType' object has no attribute 'postcode'",
        stack=NONE_STACK % "postcode",
    ),
    kind(
        "python-none-vat",
        near="python-none-postcode",
        queue="billing.companies",
        error_type="AttributeError",
        reason="'NoneType' object has no attribute 'vat_id'",
        stack=NONE_STACK % "vat_id",
    ),
    kind(
        "python-orphan-lines",
        queue="billing.lines",
        error_type="sqlalchemy.exc.IntegrityError",
        # Some 10 KB: SQLAlchemy quotes the statement and its parameters, as many as the batch had.
        reason=lambda rng: (
            '(psycopg.errors.ForeignKeyViolation) insert or update on table "invoice_lines" violates foreign key constraint "invoice_lines_invoice_id_fkey"\n'
            'DETAIL:  Key (invoice_id)=({{int}}) is not present in table "invoices".\n'
            "[SQL: INSERT INTO invoice_lines (id, invoice_id, net, note) VALUES (%(id)s, %(invoice_id)s, %(net)s, %(note)s)]\n[parameters: ["
            + ", ".join(
                "{'id': UUID('{{uuid}}'), 'invoice_id': {{int}}, 'net': Decimal('{{amount}}'), 'note': '{{input}}'}"
                for _ in range(rng.randint(80, 110))
            )
            + "]]\n(Background on this error at: https://sqlalche.me/e/20/gkpj)"
        ),
    ),
    kind(
        "python-not-utf8",
        queue="edi.inbound",
        error_type="UnicodeDecodeError",
        reason="'utf-8' codec can't decode byte 0x{{pick:e9|fc|f6|a0|b4|c3}} in position {{int:2-90000}}: invalid continuation byte",
        stack="""\
Traceback (most recent call last):
  File "{{pick:C:\\Services\\edi|D:\\apps\\edi-4.2}}\\edi\\inbound.py", line {{line}}, in read_document
    text = raw.decode()
           ^^^^^^^^^^^^
UnicodeDecodeError: {{reason}}""",
    ),
    kind(
        "python-worker-killed",
        near="python-worker-segfault",
        queue="celery.thumbnails",
        error_type="billiard.exceptions.WorkerLostError",
        reason="Worker exited prematurely: signal 9 (SIGKILL) Job: {{int:1-9000}}.",
    ),
    kind(
        "python-worker-segfault",
        near="python-worker-killed",
        queue="celery.thumbnails",
        error_type="billiard.exceptions.WorkerLostError",
        reason="Worker exited prematurely: signal 11 (SIGSEGV) Job: {{int:1-9000}}.",
    ),
    kind(
        "python-amount-not-decimal",
        queue="bank.statements",
        error_type="ValueError",
        reason="statement {{date}}/{{int:1-400}} of {{upper:2}}{{digits:20}}: could not convert amount {{pick:'12,50'|'1 200.00-'|'EUR 7'|\"9'900.--\"|'--'|'0x1F'}} at entry {{int:1-400}}",
        stack="""\
Traceback (most recent call last):
  File "/code/bank/mt940.py", line {{line}}, in amount_of
    return Decimal(raw)
           ^^^^^^^^^^^^
decimal.InvalidOperation: [<class 'decimal.ConversionSyntax'>]

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/code/bank/consumer.py", line {{line}}, in on_statement
    entries = [entry_of(line) for line in lines]
  File "/code/bank/mt940.py", line {{line}}, in entry_of
    raise ValueError(message) from None
ValueError: {{reason}}""",
    ),
)
