"""Node consumers: axios, sockets, Mongo, and undefined."""
# ruff: noqa: E501 - a log line is as long as it is

from __future__ import annotations

from tests.unit.error_corpus.templates import kind

KINDS = (
    kind(
        "node-push-refused",
        queue="notifications.push",
        error_type="AxiosError",
        reason="connect ECONNREFUSED {{pick:127.0.0.1|10.40.2.19|10.40.7.3|::1|fd00:12::7}}:{{port}}",
        stack="""\
AxiosError: {{reason}}
at AxiosError.from (file:///{{pick:app|usr/src/app}}/node_modules/axios/lib/core/AxiosError.js:{{line}}:{{int:3-40}})
at RedirectableRequest.handleRequestError (file:///app/node_modules/axios/lib/adapters/http.js:{{line}}:{{int:3-40}})
at ClientRequest.emit (node:events:{{line}}:{{int:3-40}})
at async PushGateway.send (/app/dist/push/gateway.js:{{line}}:{{int:3-40}})
at async onNotification (/app/dist/consumers/push.js:{{line}}:{{int:3-40}})
{{tail:ticks}}""",
    ),
    kind(
        "node-undefined-street",
        queue="notifications.mail",
        error_type="TypeError",
        reason="Cannot read properties of undefined (reading 'street')",
        stack="""\
TypeError: {{reason}}
at formatAddress (/{{pick:app|srv/mailer|usr/src/app}}/dist/mail/format.js:{{line}}:{{int:3-90}})
at /app/dist/mail/render.js:{{line}}:{{int:3-90}}
at Array.map (<anonymous>)
at renderMail (/app/dist/mail/render.js:{{line}}:{{int:3-90}})
{{tail:amqplib}}""",
    ),
    kind(
        "node-mongo-duplicate-email",
        near="node-mongo-duplicate-phone",
        queue="profiles.upsert",
        error_type="MongoServerError",
        reason="E11000 duplicate key error collection: profiles.users index: email_1_tenant_1 dup key: { email: \"{{email}}\", tenant: ObjectId('{{oid}}') }",
    ),
    kind(
        "node-mongo-duplicate-phone",
        near="node-mongo-duplicate-email",
        queue="profiles.upsert",
        error_type="MongoServerError",
        reason="E11000 duplicate key error collection: profiles.users index: phone_1_tenant_1 dup key: { phone: \"+{{digits:11}}\", tenant: ObjectId('{{oid}}') }",
    ),
    kind(
        "node-session-rejected",
        queue="profiles.sync",
        error_type="Error",
        reason="""\
CRM refused the session: token {{jwt}} expired at {{iso}} (clock {{epoch:ms}})
  request: {{json}}
  trace: {{hex:32}}-{{hex:16}}-01""",
        stack="""\
Error: {{reason}}
at CrmSession.assertFresh (/app/dist/crm/session.js:{{line}}:{{int:3-40}})
at async syncProfile (/{{pick:app|usr/src/app}}/dist/consumers/profile-sync.js:{{line}}:{{int:3-40}})
{{tail:ticks}}""",
    ),
)
