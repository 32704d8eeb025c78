"""Node consumers of the half that rule writers do not read."""
# ruff: noqa: E501 - a log line is as long as it is

from __future__ import annotations

from tests.unit.error_corpus.templates import kind

AXIOS_STACK = """\
AxiosError: {{reason}}
at settle (/{{pick:app|home/node/app}}/node_modules/axios/dist/node/axios.cjs:{{line}}:{{int:3-40}})
at IncomingMessage.handleStreamEnd (/app/node_modules/axios/dist/node/axios.cjs:{{line}}:{{int:3-40}})
at IncomingMessage.emit (node:events:{{line}}:{{int:3-40}})
at Axios.request (/app/node_modules/axios/dist/node/axios.cjs:{{line}}:{{int:3-40}})
at async MenuClient.fetchMenu (/app/src/clients/menu.client.ts:{{line}}:{{int:3-40}})
at async MenuSyncHandler.handle (/app/src/handlers/menu-sync.handler.ts:{{line}}:{{int:3-40}})
{{tail:ticks}}"""

KINDS = (
    kind(
        "node-menu-404",
        near="node-menu-503",
        queue="restaurants.menu-sync",
        error_type="AxiosError",
        reason="Request failed with status code 404",
        stack=AXIOS_STACK,
    ),
    kind(
        "node-menu-503",
        near="node-menu-404",
        queue="restaurants.menu-sync",
        error_type="AxiosError",
        reason="Request failed with status code 503",
        stack=AXIOS_STACK,
    ),
    kind(
        "node-sequelize-courier",
        queue="deliveries.assign",
        error_type="SequelizeForeignKeyConstraintError",
        reason='insert or update on table "deliveries" violates foreign key constraint "deliveries_courierId_fkey"',
        stack="""\
Error
at Query.run (/app/node_modules/sequelize/lib/dialects/postgres/query.js:{{line}}:{{int:3-40}})
at /app/node_modules/sequelize/lib/sequelize.js:{{line}}:{{int:3-40}}
at process.processTicksAndRejections (node:internal/process/task_queues:{{line}}:{{int:3-21}})
at async PostgresQueryInterface.insert (/app/node_modules/sequelize/lib/dialects/abstract/query-interface.js:{{line}}:{{int:3-40}})
at async AssignmentService.assign (/app/{{pick:src|build/src}}/assignments/assignment.service.ts:{{line}}:{{int:3-40}})
at async Object.eachMessage (/app/src/assignments/consumer.ts:{{line}}:{{int:3-40}})
  name: 'SequelizeForeignKeyConstraintError',
  parent: error: {{reason}}
    detail: 'Key (courierId)=({{uuid}}) is not present in table "couriers".',
    length: {{int:200-400}}, severity: 'ERROR', code: '23503'""",
    ),
    kind(
        "node-receipt-not-json",
        queue="payments.receipts",
        error_type="SyntaxError",
        reason="Unexpected token '<', \"<html><head><title>{{int:1-99}} {{alnum:6}}\"... is not valid JSON (position {{int:0-4000}})",
        stack="""\
SyntaxError: {{reason}}
at JSON.parse (<anonymous>)
at parseReceipt (webpack-internal:///(rsc)/./src/receipts/parse.ts:{{line}}:{{int:3-40}})
at ReceiptConsumer.<anonymous> (/app/src/receipts/consumer.ts:{{line}}:{{int:3-40}})
at Generator.next (<anonymous>)
at fulfilled (/app/src/receipts/consumer.ts:{{int:4-9}}:{{int:3-90}})
{{tail:ticks}}""",
    ),
    kind(
        "node-photo-missing",
        queue="restaurants.photos",
        error_type="Error",
        reason="ENOENT: no such file or directory, open '{{upath:jpg}}'",
        stack="""\
Error: {{reason}}
at async open (node:internal/fs/promises:{{line}}:{{int:3-40}})
at async Object.readFile (node:internal/fs/promises:{{line}}:{{int:3-40}})
at async resize (/app/src/photos/resize.ts:{{line}}:{{int:3-40}})
{{tail:amqplib}}""",
    ),
    kind(
        "node-bucket-token-expired",
        queue="restaurants.photos",
        error_type="ExpiredToken",
        reason="The provided token has expired. (Service: S3, Status Code: 400, Request ID: {{upper:4}}{{digits:6}}{{upper:6}}, Extended Request ID: {{b64:48}}, key tenants/{{oid}}/photos/{{alnum:12}}.webp, signed {{basic}})",
        stack="""\
ExpiredToken: {{reason}}
at throwDefaultError (/app/node_modules/@smithy/smithy-client/dist-cjs/index.js:{{line}}:{{int:3-40}})
at de_CommandError (/app/node_modules/@aws-sdk/client-s3/dist-cjs/index.js:{{line}}:{{int:3-40}})
at process.processTicksAndRejections (node:internal/process/task_queues:{{line}}:{{int:3-21}})
at async PhotoStore.put (/app/src/photos/store.ts:{{line}}:{{int:3-40}})
{{tail:ticks}}""",
    ),
)
