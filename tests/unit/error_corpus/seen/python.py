"""Python consumers: requests, psycopg, pydantic, Celery."""
# ruff: noqa: E501 - a log line is as long as it is

from __future__ import annotations

from tests.unit.error_corpus.templates import kind

PICK_STACK = """\
Traceback (most recent call last):
  File "/{{pick:app|srv/releases/20260211093344|srv/releases/20251102170012}}/warehouse/consumer.py", line {{line}}, in on_message
    self.handlers[event.kind](event)
  File "/{{pick:app|opt/warehouse}}/warehouse/picking.py", line {{line}}, in plan_route
    zone = zones[line[{{reason}}]]
           ~~~~~{{pick:^^^^^|^^^^^^^|^^^^^^^^^}}
KeyError: {{reason}}"""

PSYCOPG_STACK = """\
Traceback (most recent call last):
  File "/usr/local/lib/python3.{{int:11-13}}/site-packages/sqlalchemy/engine/base.py", line {{line}}, in _exec_single_context
    self.dialect.do_execute(
  File "/usr/local/lib/python3.{{int:11-13}}/site-packages/psycopg/cursor.py", line {{line}}, in execute
    raise ex.with_traceback(None)
%s

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/app/reports/consumer.py", line {{line}}, in handle
    totals = await self.daily_totals(day)
  File "/app/reports/queries.py", line {{line}}, in daily_totals
    rows = await session.execute(statement)
  File "/usr/local/lib/python3.{{int:11-13}}/site-packages/sqlalchemy/ext/asyncio/session.py", line {{line}}, in execute
    result = await greenlet_spawn(
sqlalchemy.exc.ProgrammingError: {{reason}}"""

KINDS = (
    kind(
        "python-carrier-refused",
        queue="shipping.labels",
        error_type="requests.exceptions.ConnectionError",
        reason="HTTPSConnectionPool(host='{{host}}', port={{port}}): Max retries exceeded with url: /v1/labels/{{int}}?{{query}} (Caused by NewConnectionError('<urllib3.connection.HTTPSConnection object at {{addr}}>: Failed to establish a new connection: [Errno 111] Connection refused'))",
        stack="""\
Traceback (most recent call last):
  File "/venv/lib/python3.{{int:11-13}}/site-packages/urllib3/connection.py", line {{line}}, in _new_conn
    sock = connection.create_connection(
ConnectionRefusedError: [Errno 111] Connection refused

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/app/shipping/labels.py", line {{line}}, in buy_label
    response = self.http.post(url, json=body, timeout=10)
  File "/venv/lib/python3.{{int:11-13}}/site-packages/requests/sessions.py", line {{line}}, in post
    return self.request("POST", url, data=data, json=json, **kwargs)
  File "/venv/lib/python3.{{int:11-13}}/site-packages/requests/adapters.py", line {{line}}, in send
    raise ConnectionError(e, request=request)
requests.exceptions.ConnectionError: {{reason}}""",
    ),
    kind(
        "python-keyerror-sku",
        near="python-keyerror-warehouse",
        queue="warehouse.picks",
        error_type="KeyError",
        reason="'sku'",
        stack=PICK_STACK,
    ),
    kind(
        "python-keyerror-warehouse",
        near="python-keyerror-sku",
        queue="warehouse.picks",
        error_type="KeyError",
        reason="'warehouse_code'",
        stack=PICK_STACK,
    ),
    kind(
        "python-pydantic-quantity",
        queue="warehouse.receipts",
        error_type="pydantic_core._pydantic_core.ValidationError",
        reason="""\
1 validation error for GoodsReceipt
lines.{{int:0-60}}.quantity
  Input should be a valid integer, unable to parse string as an integer [type=int_parsing, input_value='{{input}}', input_type=str]
    For further information visit https://errors.pydantic.dev/2.{{int:6-12}}/v/int_parsing""",
        stack="""\
Traceback (most recent call last):
  File "/app/warehouse/consumer.py", line {{line}}, in on_message
    await self.receive(GoodsReceipt.model_validate_json(message.body))
                       ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "/{{pick:venv|usr/local}}/lib/python3.{{int:11-13}}/site-packages/pydantic/main.py", line {{line}}, in model_validate_json
    return cls.__pydantic_validator__.validate_json(json_data, strict=strict, context=context)
pydantic_core._pydantic_core.ValidationError: {{reason}}""",
    ),
    kind(
        "python-celery-soft-limit",
        queue="celery.render",
        error_type="celery.exceptions.SoftTimeLimitExceeded",
        reason="Task billing.tasks.render_invoice[{{uuid}}] raised unexpected: SoftTimeLimitExceeded() after {{float}}s on celery@{{pod:render}} (ForkPoolWorker-{{int:1-48}})",
    ),
    kind(
        "python-missing-column",
        near="python-missing-table",
        queue="reports.daily",
        error_type="sqlalchemy.exc.ProgrammingError",
        reason="""\
(psycopg.errors.UndefinedColumn) column o.net_total does not exist
LINE {{int:1-9}}: SELECT sum(o.net_total) FROM orders AS o WHERE o.day = $1
                    ^
[SQL: SELECT sum(o.net_total) FROM orders AS o WHERE o.day = %(day)s AND o.tenant = %(tenant)s]
[parameters: {'day': '{{date}}', 'tenant': {{int}}}]
(Background on this error at: https://sqlalche.me/e/20/f405)""",
        stack=PSYCOPG_STACK % "psycopg.errors.UndefinedColumn: column o.net_total does not exist",
    ),
    kind(
        "python-missing-table",
        near="python-missing-column",
        queue="reports.daily",
        error_type="sqlalchemy.exc.ProgrammingError",
        reason="""\
(psycopg.errors.UndefinedTable) relation "orders_archive" does not exist
LINE {{int:1-9}}: SELECT sum(o.total) FROM orders_archive AS o WHERE o.day = $1
                    ^
[SQL: SELECT sum(o.total) FROM orders_archive AS o WHERE o.day = %(day)s AND o.tenant = %(tenant)s]
[parameters: {'day': '{{date}}', 'tenant': {{int}}}]
(Background on this error at: https://sqlalche.me/e/20/f405)""",
        stack=PSYCOPG_STACK
        % 'psycopg.errors.UndefinedTable: relation "orders_archive" does not exist',
    ),
)
