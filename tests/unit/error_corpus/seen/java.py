"""Java consumers: Spring AMQP, Hibernate, JDBC, Jackson."""
# ruff: noqa: E501 - a log line is as long as it is

from __future__ import annotations

from tests.unit.error_corpus.templates import kind

PRICING_STACK = """\
org.springframework.amqp.rabbit.support.ListenerExecutionFailedException: Listener method 'public void com.acme.orders.OrderListener.onOrder(com.acme.orders.OrderCreated)' threw exception
{{tail:reflect}}
Caused by: java.lang.NullPointerException: {{reason}}
at com.acme.orders.pricing.PricingService.quote(PricingService.java:{{line}})
at com.acme.orders.pricing.PricingService$$FastClassBySpringCGLIB$${{hex:8}}.invoke(<generated>)
{{tail:aop}}
at com.acme.orders.pricing.PricingService{{cglib}}.quote(<generated>)
at com.acme.orders.OrderListener.onOrder(OrderListener.java:{{line}})
... {{int:9-40}} more"""

DUPLICATE_STACK = """\
org.springframework.dao.DataIntegrityViolationException: {{reason}}
at org.springframework.orm.jpa.vendor.HibernateJpaDialect.convertHibernateAccessException(HibernateJpaDialect.java:{{line}})
at org.springframework.orm.jpa.JpaTransactionManager.doCommit(JpaTransactionManager.java:{{line}})
at jdk.proxy2/jdk.proxy2.{{proxy}}.save(Unknown Source)
at com.acme.ledger.BookingWriter.persist(BookingWriter.java:{{line}})
at com.acme.ledger.BookingConsumer.handle(BookingConsumer.java:{{line}})
{{tail:reflect}}
Caused by: org.hibernate.exception.ConstraintViolationException: could not execute statement
at org.hibernate.exception.internal.SQLExceptionTypeDelegate.convert(SQLExceptionTypeDelegate.java:{{line}})
... {{int:20-60}} common frames omitted
Caused by: org.postgresql.util.PSQLException: ERROR: duplicate key value violates unique constraint
at org.postgresql.core.v3.QueryExecutorImpl.receiveErrorResponse(QueryExecutorImpl.java:{{line}})
... {{int:20-60}} common frames omitted"""


def duplicate(table: str, constraint: str, columns: str) -> str:
    return (
        f"could not execute statement [ERROR: duplicate key value violates unique constraint "
        f'"{constraint}"\n  Detail: Key ({columns})=({{{{uuid}}}}, {{{{int}}}}) already exists.] '
        f"[insert into {table} (amount,booked_at,id) values (?,?,?)]; "
        f"SQL [insert into {table} (amount,booked_at,id) values (?,?,?)]; constraint [{constraint}]"
    )


def unknown_field(field: str) -> str:
    return (
        f'Unrecognized field "{field}" (class com.acme.catalog.ProductChanged$Offer), not marked as '
        'ignorable (4 known properties: "price", "currency", "sku", "validFrom"])\n'
        ' at [Source: (byte[])"{"eventId":"{{ulid}}","at":"{{iso}}","offers":[{"sku":"{{upper:3}}-{{digits:5}}",'
        '"price":{{amount}},"cur"[truncated {{int:100-9000}} bytes]; line: {{int:1-40}}, column: {{int:2-2400}}] '
        "(through reference chain: com.acme.catalog.ProductChanged"
        f'["offers"]->java.util.ArrayList[{{{{int:0-30}}}}]->com.acme.catalog.ProductChanged$Offer["{field}"])'
    )


JACKSON_STACK = """\
com.fasterxml.jackson.databind.exc.UnrecognizedPropertyException: {{reason}}
at com.fasterxml.jackson.databind.exc.UnrecognizedPropertyException.from(UnrecognizedPropertyException.java:{{line}})
at com.fasterxml.jackson.databind.DeserializationContext.handleUnknownProperty(DeserializationContext.java:{{line}})
at com.fasterxml.jackson.databind.deser.BeanDeserializer.deserialize(BeanDeserializer.java:{{line}})
at com.fasterxml.jackson.databind.ObjectMapper.readValue(ObjectMapper.java:{{line}})
at com.acme.catalog.EventCodec.decode(EventCodec.java:{{line}})
at com.acme.catalog.ProductListener.lambda$receive${{int:0-9}}(ProductListener.java:{{line}})
at com.acme.catalog.ProductListener{{lambda}}.run(Unknown Source)
{{tail:pool}}"""

LOCK_REASON = "Lock 'stock:{{upper:2}}{{digits:6}}' not acquired within {{dur}} (owner {{pod:stock}}, thread amqp-{{int:1-64}}, lease com.acme.stock.locks.Lease@{{hex:8}}, hash {{hashcode}})"
LOCK_STACK = """\
java.lang.IllegalStateException: {{reason}}
at org.redisson.RedissonLock.tryLockInner(RedissonLock.java:{{line}})
at com.acme.stock.locks.Locks.require(Locks.java:{{line}})
"""

KINDS = (
    kind(
        "java-npe-customer-tier",
        near="java-npe-shipping-address",
        queue="orders.created",
        error_type="java.lang.NullPointerException",
        reason='Cannot invoke "com.acme.orders.Customer.getTier()" because the return value of "com.acme.orders.CustomerRepository.find(java.lang.Long)" is null',
        stack=PRICING_STACK,
    ),
    kind(
        "java-npe-shipping-address",
        near="java-npe-customer-tier",
        queue="orders.created",
        error_type="java.lang.NullPointerException",
        reason='Cannot invoke "com.acme.orders.Address.getCountry()" because the return value of "com.acme.orders.OrderCreated.getShippingAddress()" is null',
        stack=PRICING_STACK,
    ),
    kind(
        "java-duplicate-booking-ref",
        near="java-duplicate-booking-sequence",
        queue="ledger.bookings",
        error_type="org.springframework.dao.DataIntegrityViolationException",
        reason=duplicate("booking", "uk_booking_external_ref", "external_ref, tenant_id"),
        stack=DUPLICATE_STACK,
    ),
    kind(
        "java-duplicate-booking-sequence",
        near="java-duplicate-booking-ref",
        queue="ledger.bookings",
        error_type="org.springframework.dao.DataIntegrityViolationException",
        reason=duplicate("booking", "uk_booking_account_sequence", "account_id, sequence_no"),
        stack=DUPLICATE_STACK,
    ),
    kind(
        "java-hikari-exhausted",
        queue="orders.created",
        error_type="java.sql.SQLTransientConnectionException",
        reason="HikariPool-{{int:1-4}} - Connection is not available, request timed out after {{ms}} (total={{int:5-40}}, active={{int:5-40}}, idle=0, waiting={{int:1-300}})",
        stack="""\
java.sql.SQLTransientConnectionException: {{reason}}
at com.zaxxer.hikari.pool.HikariPool.createTimeoutException(HikariPool.java:{{line}})
at com.zaxxer.hikari.pool.HikariPool.getConnection(HikariPool.java:{{line}})
at com.zaxxer.hikari.HikariDataSource.getConnection(HikariDataSource.java:{{line}})
at org.springframework.jdbc.datasource.DataSourceUtils.fetchConnection(DataSourceUtils.java:{{line}})
at org.springframework.jdbc.core.JdbcTemplate.execute(JdbcTemplate.java:{{line}})
at com.acme.orders.OrderStore.insert(OrderStore.java:{{line}})
at com.acme.orders.OrderListener.onOrder(OrderListener.java:{{line}})
{{tail:reflect}}""",
    ),
    kind(
        "java-unknown-field-loyalty",
        near="java-unknown-field-coupon",
        queue="catalog.changes",
        error_type="com.fasterxml.jackson.databind.exc.UnrecognizedPropertyException",
        reason=unknown_field("loyaltyTier"),
        stack=JACKSON_STACK,
    ),
    kind(
        "java-unknown-field-coupon",
        near="java-unknown-field-loyalty",
        queue="catalog.changes",
        error_type="com.fasterxml.jackson.databind.exc.UnrecognizedPropertyException",
        reason=unknown_field("couponCode"),
        stack=JACKSON_STACK,
    ),
    kind(
        "java-lock-in-reserve",
        near="java-lock-in-release",
        queue="stock.commands",
        error_type="java.lang.IllegalStateException",
        reason=LOCK_REASON,
        stack=LOCK_STACK
        + """\
at com.acme.stock.ReservationHandler.reserve(ReservationHandler.java:{{line}})
at com.acme.stock.StockListener.onCommand(StockListener.java:{{line}})
{{tail:reflect}}""",
    ),
    kind(
        "java-lock-in-release",
        near="java-lock-in-reserve",
        queue="stock.commands",
        error_type="java.lang.IllegalStateException",
        reason=LOCK_REASON,
        stack=LOCK_STACK
        + """\
at com.acme.stock.ExpiryHandler.release(ExpiryHandler.java:{{line}})
at com.acme.stock.StockListener.onCommand(StockListener.java:{{line}})
{{tail:reflect}}""",
    ),
    kind(
        "java-partner-rejected-batch",
        queue="partner.sync",
        error_type="com.acme.partner.BatchRejectedException",
        # Some 10 KB: every line of the batch is named, and no two batches are as long.
        reason=lambda rng: (
            "Partner rejected batch {{uuid:any}} submitted {{rfc2822}} to https://{{host}}:{{port}}/v3/batches?{{query}}: "
            + "; ".join(
                "item {{int:1-500}} ({{id:itm}}): price {{amount}} {{cur}} below floor, contact {{email}}, session {{hex:32}}"
                for _ in range(rng.randint(85, 120))
            )
        ),
    ),
)
