"""PHP and Ruby consumers of the half that rule writers do not read."""
# ruff: noqa: E501 - a log line is as long as it is

from __future__ import annotations

from tests.unit.error_corpus.held_out.tails import SIDEKIQ, followed_by, php
from tests.unit.error_corpus.templates import kind

INVOICE_STACK = php(
    """\
ErrorException: {{reason}} in /var/www/src/Sync/InvoiceMapper.php:{{line}}
Stack trace:
#0 /var/www/src/Sync/InvoiceMapper.php({{line}}): Symfony\\Component\\ErrorHandler\\ErrorHandler->handleError(2, 'Undefined array...', '/var/www/src/Sy...', {{line}})
#1 /var/www/src/MessageHandler/SyncInvoiceHandler.php({{line}}): App\\Sync\\InvoiceMapper->line(Array, {{int:0-90}})
#2 /var/www/src/MessageHandler/SyncInvoiceHandler.php({{line}}): App\\MessageHandler\\SyncInvoiceHandler->sync(Object(App\\Entity\\Invoice), '{{uuid}}')""",
    3,
)


def refused(status: str) -> str:
    return (
        f"Client error: `POST https://{{{{host}}}}/api/v3/shops/{{{{int}}}}/orders?{{{{query}}}}` resulted in a `{status}` response:\n"
        '{"requestId":"{{uuid}}","order":{{json}} (truncated...)\n'
    )


ORDER_STACK = php(
    """\
GuzzleHttp\\Exception\\ClientException: {{reason}} in /var/www/vendor/guzzlehttp/guzzle/src/Exception/RequestException.php:{{line}}
Stack trace:
#0 /var/www/vendor/guzzlehttp/guzzle/src/Middleware.php({{line}}): GuzzleHttp\\Exception\\RequestException::create(Object(GuzzleHttp\\Psr7\\Request), Object(GuzzleHttp\\Psr7\\Response), NULL, Array, NULL)
#1 /var/www/vendor/guzzlehttp/promises/src/Promise.php({{line}}): GuzzleHttp\\Middleware::GuzzleHttp\\{closure}(Object(GuzzleHttp\\Psr7\\Response))
#2 /var/www/src/Shop/Client.php({{line}}): GuzzleHttp\\Client->request('POST', 'https://{{pick:gw|api|shops}}...', Array)
#3 /var/www/src/MessageHandler/PushOrderHandler.php({{line}}): App\\Shop\\Client->push(Object(App\\Entity\\Order))""",
    4,
)

SUPPLIER_STACK = followed_by(
    """\
/usr/local/bundle/gems/activerecord-7.{{int:0-2#activerecord}}.{{int:0-9#activerecord}}/lib/active_record/validations.rb:{{line}}:in `raise_validation_error'
/usr/local/bundle/gems/activerecord-7.{{int:0-2#activerecord}}.{{int:0-9#activerecord}}/lib/active_record/transactions.rb:{{line}}:in `block in save!'
/app/app/services/suppliers/upsert.rb:{{line}}:in `call'
/app/app/workers/supplier_worker.rb:{{line}}:in `perform'""",
    SIDEKIQ,
)

CACHE_STACK = followed_by(
    """\
/usr/local/bundle/gems/redis-client-0.{{int:11-23#redis_client}}.{{int:0-3#redis_client}}/lib/redis_client/connection_mixin.rb:{{line}}:in `call'
/usr/local/bundle/gems/redis-client-0.{{int:11-23#redis_client}}.{{int:0-3#redis_client}}/lib/redis_client.rb:{{line}}:in `block in call'
/app/app/models/basket_cache.rb:{{line}}:in `store'
/app/app/workers/basket_worker.rb:{{line}}:in `block in perform'""",
    SIDEKIQ,
)

KINDS = (
    kind(
        "php-no-vat-rate",
        near="php-no-unit",
        queue="async_invoices",
        error_type="ErrorException",
        reason='Warning: Undefined array key "vat_rate"',
        stack=INVOICE_STACK,
    ),
    kind(
        "php-no-unit",
        near="php-no-vat-rate",
        queue="async_invoices",
        error_type="ErrorException",
        reason='Warning: Undefined array key "unit"',
        stack=INVOICE_STACK,
    ),
    kind(
        "php-memory-exhausted",
        queue="async_exports",
        error_type="Symfony\\Component\\ErrorHandler\\Error\\OutOfMemoryError",
        reason="Error: Allowed memory size of {{pick:134217728|268435456|536870912}} bytes exhausted (tried to allocate {{int:4096-90000000}} bytes)",
    ),
    kind(
        "php-order-unprocessable",
        near="php-order-conflict",
        queue="async_orders",
        error_type="GuzzleHttp\\Exception\\ClientException",
        reason=refused("422 Unprocessable Entity"),
        stack=ORDER_STACK,
    ),
    kind(
        "php-order-conflict",
        near="php-order-unprocessable",
        queue="async_orders",
        error_type="GuzzleHttp\\Exception\\ClientException",
        reason=refused("409 Conflict"),
        stack=ORDER_STACK,
    ),
    kind(
        "ruby-tax-number-taken",
        near="ruby-postcode-invalid",
        queue="suppliers",
        error_type="ActiveRecord::RecordInvalid",
        reason="Validation failed: Tax number has already been taken",
        stack=SUPPLIER_STACK,
    ),
    kind(
        "ruby-postcode-invalid",
        near="ruby-tax-number-taken",
        queue="suppliers",
        error_type="ActiveRecord::RecordInvalid",
        reason="Validation failed: Postcode is invalid",
        stack=SUPPLIER_STACK,
    ),
    kind(
        "ruby-feed-read-timeout",
        queue="feeds",
        error_type="Net::ReadTimeout",
        reason="Net::ReadTimeout with #<TCPSocket:(closed)>",
        stack=followed_by(
            """\
/usr/local/lib/ruby/3.{{int:1-3#ruby}}.0/net/protocol.rb:{{line}}:in `rbuf_fill'
/usr/local/lib/ruby/3.{{int:1-3#ruby}}.0/net/http/response.rb:{{line}}:in `read_status_line'
/usr/local/bundle/gems/faraday-net_http-3.{{int:0-3}}.0/lib/faraday/adapter/net_http.rb:{{line}}:in `perform_request'
/app/lib/feeds/download.rb:{{line}}:in `fetch'
/app/app/workers/feed_worker.rb:{{line}}:in `perform'""",
            SIDEKIQ,
        ),
    ),
    kind(
        "ruby-cache-read-only",
        near="ruby-cache-full",
        queue="baskets",
        error_type="RedisClient::CommandError",
        reason="READONLY You can't write against a read only replica. script: {{hex:40}}, on @user_script:{{int:1-40}}. (redis://{{host}}:{{port}}/{{int:0-15}})",
        stack=CACHE_STACK,
    ),
    kind(
        "ruby-cache-full",
        near="ruby-cache-read-only",
        queue="baskets",
        error_type="RedisClient::CommandError",
        reason="OOM command not allowed when used memory > 'maxmemory'. script: {{hex:40}}, on @user_script:{{int:1-40}}. (redis://{{host}}:{{port}}/{{int:0-15}})",
        stack=CACHE_STACK,
    ),
)
