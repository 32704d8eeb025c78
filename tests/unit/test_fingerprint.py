"""Fingerprints: what groups failures, and what keeps them apart."""
# ruff: noqa: E501 - an error's text is as long as it is

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.domain.fingerprint import fingerprint, normal_reason, top_frames
from redrive.domain.frames import MAX_FRAMES
from redrive.domain.normal_reason import MAX_TEMPLATE

SAME = [
    (
        "Order 12345 not found",
        "Order ORD-9 not found",
        "Order 8f14e45f-ceea-467f-a0e6-1a2b3c4d5e6f not found",
    ),
    (
        'duplicate key value violates unique constraint "uk_email"\n  Detail: Key (email, tenant)=(a@b.example, 7) already exists.',
        'duplicate key value violates unique constraint "uk_email"\n  Detail: Key (email, tenant)=(zoë, 12345) already exists.',
    ),
    (
        "request timed out after 30000ms",
        "request timed out after 1m30s",
        "request timed out after 2 s",
    ),
    ("1 validation error for Order", "3 validation errors for Order"),
    (
        "token expired at 2026-02-11T09:30:00.123Z",
        "token expired at Tue, 10 Feb 2026 09:30:00 GMT",
        "token expired at 11.02.2026 09:30",
    ),
    (
        'Get "https://api7.shop.example.com:8443/v2/orders/12?page=3": EOF',
        'Get "https://10.0.3.7/v2/orders/9a8b7c": EOF',
    ),
    ("connect ECONNREFUSED 10.0.0.7:5432", "connect ECONNREFUSED [fd00::7]:5433"),
    ("could not convert string to float: 'abc'", "could not convert string to float: '1,5 kg'"),
    (
        "open /var/spool/in/2026/02/11/a8f3.csv: no such file or directory",
        "open /tmp/upload/x.csv: no such file or directory",
    ),
    (
        'refused\n request: {"id": 7, "name": "Zoë", "gift": true}',
        'refused\n request: {"id":"a-7","name":"Li Wei","gift":false}',
    ),
    ("field 'lines[3].quantity' is required", "field 'lines[17].quantity' is required"),
    ("Order(id=1, name=Bob, total=3.5) is empty", "Order(id=22, name=Zoë, total=1) is empty"),
    ("charged EUR 12.50 twice", "charged USD 1,250.00 twice", "charged 7.00 CHF twice"),
    (
        'Traceback (most recent call last):\n  File "/a.py", line 3, in f\n    x()\nValueError: id 7',
        'Traceback (most recent call last):\n  File "/b.py", line 9, in g\n    y()\nValueError: id 8',
    ),
    (
        "token expired at Wed Feb 11 10:00:00 CET 2026",
        "token expired at Fri Mar 1 9:00:00 UTC 2024",
    ),
    (
        "charge/2 failed with %Shop.Order{id: 12, paid: nil}",
        'charge/2 failed with %Shop.Order{id: 9, paid: true, name: "Li Wei"}',
    ),
    (
        "cannot save Order(id=1, lines=[Line(sku=3)])",
        "cannot save Order(id=2, lines=[Line(sku=5), Line(sku=6)])",
    ),
    (
        "undefined method `pay' for #<Order id: 1, paid: nil>",
        "undefined method `pay' for #<Order id: 2, paid: true>",
    ),
    (
        "rejected: row 1 (A-7) late, row 2 (B-8) late",
        "rejected: row 3 (C-1) late, row 4 (D-2) late, row 5 (E-3) late",
    ),
    (
        "insert into `t` (`a`) values (12, Bob Smith, ?)",
        "insert into `t` (`a`) values (7, Li Wei, ?)",
    ),
    ("unexpected character ('}' (code 125))", "unexpected character ('a' (code 97))"),
    ("class jdk.proxy2.$Proxy42 is no Order", "class jdk.proxy3.$Proxy7 is no Order"),
    ("decode manifest v2: too short", "decode manifest v3: too short"),
    ("ids 1, 2 and 3 are gone", "ids 7, 8, 9 and 10 are gone"),
    ("call +49 170 5551234", "call +1 (212) 555-1234", "call 12'345"),
    ("session pi_OOYUrdwk ended", "session re_Pucxffdr ended", "session ch_Bbmbkq ended"),
    ("photo ndDOMHkHkfQE.webp is broken", "photo XFqYHGnlwjaG.webp is broken"),
    ("key eyJhbGciOi.eyJz.-Kt8_ZoF expired", "key eyJhbGciOi.eyJz.P5q7g11C- expired"),
    ("connect to api.partner.fr:443 failed", "connect to cache.other.co.uk:443 failed"),
    ("Unexpected token a in JSON", "Unexpected token } in JSON"),
    ("<price>12.5</price> is wrong", "<price>ten</price> is wrong"),
    ('relation "orders_2026_02" does not exist', 'relation "orders_2025_11" does not exist'),
    ("insert (a) in (?, ?) failed", "insert (a) in (?,?,?) failed"),
    ("Unparseable: ''", "Unparseable: 'abc'"),
    ("API sent with 512 out of 700 bytes", "API sent with 12 out of 9 bytes"),
]
DIFFERENT = [
    ("HTTP 404", "HTTP 503"),
    ("Request failed with status code 404", "Request failed with status code 503"),
    ("the server answered 502", "the server answered 504"),
    ("404 Not Found from GET /a", "410 Gone from GET /a"),
    ("ORA-00001: violated", "ORA-02291: violated"),
    ("E11000 duplicate key", "E11001 duplicate key"),
    ("ERROR (SQLSTATE 40001)", "ERROR (SQLSTATE 40P01)"),
    ("Error 1062 (23000): x", "Error 1205 (40001): x"),
    ("exit code 137", "exit code 1"),
    ("[Errno 111] refused", "[Errno 104] refused"),
    ('null value in column "email"', 'null value in column "phone"'),
    ("column address1 does not exist", "column address2 does not exist"),
    ("Unknown column 'a1' in 'field list'", "Unknown column 'a2' in 'field list'"),
    ("Invalid object name 'dbo.Orders'", "Invalid object name 'dbo.Lines'"),
    ("Cannot read properties of undefined (reading 'id')", "Cannot read properties of undefined (reading 'sku')"),
    ("'customer_id'", "'order_id'"),
    ("'sku'", "'warehouse'"),
    ("Celery task shop.charge rejected after 3 retries", "Celery task shop.refund rejected after 3 retries"),
    ("no policy for routing key 'order.created': not retried", "no policy for routing key 'order.paid': not retried"),
    ('{"error":"card_declined","id":"ch_1aB2cD3eF"}', '{"error":"card_expired","id":"ch_1aB2cD3eF"}'),
    ("code=INVALID_AMOUNT, order=1", "code=INVALID_DATE, order=1"),
    ("550 5.1.1 <a@b.example>: rejected", "552 5.2.2 <a@b.example>: rejected"),
    ("PAY-1234: x", "PAY-1235: x"),
    ("Stripe returned 402", "Stripe returned 429"),
    ("<Response [503]>", "<Response [404]>"),
    ("resulted in a `422 Unprocessable Entity` response", "resulted in a `404 Not Found` response"),
    ('DbError { code: "23505", line: 1 }', 'DbError { code: "40001", line: 1 }'),
    ('invalid: %{email: [{"is blank", []}]}', 'invalid: %{phone: [{"is blank", []}]}'),
    ("bad value for column `shop`.`paid`", "bad value for column `shop`.`sent`"),
    ("Unsupported format 'xls'", "Unsupported format 'csv'"),
    ("com.acme.orders.v1.Order cannot be cast", "com.acme.orders.v2.Order cannot be cast"),
]  # fmt: skip

JAVA = """\
org.springframework.amqp.rabbit.support.ListenerExecutionFailedException: Listener threw
\tat org.springframework.amqp.rabbit.listener.Adapter.invoke(Adapter.java:12)
Caused by: java.lang.NullPointerException: x
\tat com.acme.orders.Pricing.lambda$quote${n}(Pricing.java:{n})
\tat com.acme.orders.Pricing$$EnhancerBySpringCGLIB$$8a6b{n}.quote(<generated>)
\tat java.base/java.lang.invoke.LambdaForm$MH/0x00000{n}.invoke(LambdaForm$MH)
\tat app//com.acme.orders.Listener.onOrder(Listener.java:{n})
\t... {n} more
"""
JAVA_LIBRARY_CAUSE = """\
org.springframework.dao.DataAccessException: x
\tat org.springframework.jdbc.Template.run(Template.java:{n})
\tat com.acme.ledger.Writer.persist(Writer.java:{n})
Caused by: org.postgresql.util.PSQLException: x
\tat org.postgresql.core.v3.QueryExecutorImpl.execute(QueryExecutorImpl.java:{n})
\t... {n} more
"""
DOTNET = """\
System.InvalidOperationException: outer
 ---> System.TimeoutException: inner
   at System.Net.Http.HttpClient.Send(HttpRequestMessage request)
   at Acme.Tax.Client.<GetAsync>d__{n}.MoveNext() in /src/Client.cs:line {n}
   at Acme.Tax.Consumer.<>c__DisplayClass{n}_0.<<Consume>b__{n}>d.MoveNext()
   --- End of inner exception stack trace ---
   at Acme.Outer.Run()
"""
PYTHON = """\
Traceback (most recent call last):
  File "/venv/lib/python3.11/site-packages/psycopg/cursor.py", line {n}, in execute
    raise ex
psycopg.Error: x

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/srv/releases/2026{n}/shop/consumer.py", line {n}, in handle
    store(order)
  File "/app/shop/store.py", line {n}, in store
    session.execute(insert)
  File "/venv/lib/python3.11/site-packages/sqlalchemy/engine.py", line {n}, in execute
    raise
sqlalchemy.Error: x"""
GO = """\
panic: assignment to entry in nil map
goroutine {n} [running]:
runtime/debug.Stack()
\t/usr/local/go/src/runtime/debug/stack.go:{n} +0x5e
github.com/acme/tracker/eta.(*Cache).put(0xc000{n}, {{0xc000{n}, 0x1}})
\t/src/eta/cache.go:{n} +0x1d
main.handle.func{n}()
\t/src/main.go:{n} +0x2b
created by main.start in goroutine {n}
\t/src/main.go:{n} +0x3c
"""
NODE = """\
Error: x
    at Client.request (/app/node_modules/axios/lib/axios.js:{n}:3)
    at async Gateway.send (/app/dist/push/gateway.js:{n}:11)
    at Array.map (<anonymous>)
    at Object.onMessage [as handler] (file:///usr/src/app/dist/consumer.js:{n}:5)
    at process.processTicksAndRejections (node:internal/process/task_queues:{n}:5)
"""
PHP = """\
PDOException: x in /var/www/vendor/doctrine/dbal/Driver.php:{n}
#0 /var/www/vendor/doctrine/dbal/Connection.php({n}): PDO->prepare('x')
#1 /var/www/src/Order/Handler.php({n}): App\\Repo->find({n})
#2 {{main}}
"""
RUBY = """\
/bundle/gems/activerecord-7.1.{n}/lib/core.rb:{n}:in 'find'
/app/models/order.rb:{n}:in 'block (2 levels) in Order#pay'
/app/jobs/pay_job.rb:{n}:in `perform'
"""
ELIXIR = """\
** (KeyError) key :email not found
    (elixir 1.15.{n}) lib/map.ex:{n}: Map.fetch!/2
    (shop 0.1.{n}) lib/shop/orders.ex:{n}: anonymous fn/3 in Shop.Orders.charge/2
"""
ERLANG = """\
{{badarg,[{{lists,nth,[{n}],[{{file,"lists.erl"}},{{line,{n}}}]}},\
{{shop,pay,2,[{{file,"/b/src/shop.erl"}},{{line,{n}}}]}}]}}"""
RUST = """\
thread 'main' panicked at src/orders.rs:{n}:5:
stack backtrace:
   0: core::panicking::panic_fmt
             at /rustc/a28077b28a02b929/library/core/src/panicking.rs:{n}:14
   1:     0x55d0c8a5b3f2 - shop::orders::charge::h0123456789abcdef
   2: shop::run::{{{{closure}}}}
   3: <tokio::task::Core as core::future::Future>::poll
"""
STACKS = [
    (PHP, ("Handler.php:App\\Repo->find",)),
    (RUBY, ("order.rb:Order#pay", "pay_job.rb:perform")),
    (ELIXIR, ("orders.ex:Shop.Orders.charge/2",)),
    (ERLANG, ("shop:pay",)),
    (RUST, ("shop::orders::charge", "shop::run")),
    (JAVA, ("com.acme.orders.Pricing.quote", "com.acme.orders.Listener.onOrder")),
    (JAVA_LIBRARY_CAUSE, ("com.acme.ledger.Writer.persist",)),
    (DOTNET, ("Acme.Tax.Client.GetAsync", "Acme.Tax.Consumer.Consume")),
    (PYTHON, ("store.py:store", "consumer.py:handle")),
    (GO, ("github.com/acme/tracker/eta.(*Cache).put", "main.handle")),
    (NODE, ("gateway.js:Gateway.send", "consumer.js:onMessage")),
]


def of(reason: str, stack: str | None = None, *, kind: str = "T", queue: str = "q") -> str:
    return fingerprint(error_type=kind, reason=reason, stack=stack, queue=queue)


@pytest.mark.parametrize("reasons", SAME, ids=lambda reasons: reasons[0][:40])
def test_failures_that_differ_in_values_are_one_group(reasons: tuple[str, ...]) -> None:
    assert len({of(reason) for reason in reasons}) == 1, [normal_reason(r) for r in reasons]


@pytest.mark.parametrize("reasons", DIFFERENT, ids=lambda reasons: reasons[0][:40])
def test_failures_that_differ_in_codes_and_names_are_groups_of_their_own(
    reasons: tuple[str, ...],
) -> None:
    assert len({of(reason) for reason in reasons}) == len(reasons), normal_reason(reasons[0])


def test_type_queue_and_place_are_parts_of_a_fingerprint() -> None:
    places = (of("x", stack.format(n=12)) for stack, _ in STACKS)
    assert len({of("x"), of("x", kind="U"), of("x", queue="r"), *places}) == 3 + len(STACKS)


def test_a_fingerprint_has_sixteen_hexadecimal_digits_and_never_changes() -> None:
    assert of("Order 1 not found") == "d100200a966166dc"


def test_a_title_shows_marks_where_values_were() -> None:
    assert (
        normal_reason("Order 17 of zoe@shop.example for 8f14e45f-ceea-467f not paid, see 10.0.0.1")
        == "Order <n> of <email> for <id> not paid, see <addr>"
    )


@pytest.mark.parametrize(
    ("stack", "frames"),
    STACKS,
    ids=["php", "ruby", "elixir", "erlang", "rust", "java", "cause", "net", "py", "go", "js"],
)
def test_the_applications_innermost_frames_are_found_without_numbers(
    stack: str, frames: tuple[str, ...]
) -> None:
    found = {top_frames(stack.format(n=n)) for n in (12, 345, 6789)}
    assert found == {frames}


def test_the_hash_of_a_build_is_no_part_of_a_file() -> None:
    stack = (
        "Error: x\n    at pay (/app/dist/chunk-{}.js:1:2)\n    at run (/app/dist/pay/index.js:3:4)"
    )
    found = {top_frames(stack.format(build)) for build in ("9f8a7c6d", "a1b2c3d4")}
    assert found == {("chunk.js:pay", "pay/index.js:run")}


def test_a_recursion_counts_once_however_deep_it_was() -> None:
    walk, run = "\tat com.acme.Tree.walk(Tree.java:3)\n", "\tat com.acme.Job.run(Job.java:9)\n"
    assert top_frames("E: x\n" + walk * 2 + run) == top_frames("E: x\n" + walk * 40 + run)


def test_a_stack_of_libraries_alone_has_its_innermost_frames() -> None:
    stack = "E: x\n" + "".join(f"\tat java.util.List.a{c}(List.java:1)\n" for c in "bcde")
    assert top_frames(stack) == ("java.util.List.ab", "java.util.List.ac", "java.util.List.ad")


def test_a_stack_in_an_unknown_form_is_known_by_its_files() -> None:
    stack = "app/models/order.rb:12:in `pay'\napp/jobs/pay_job.rb:7:in `perform'"
    assert top_frames(stack) == ("order.rb:pay", "pay_job.rb:perform")
    assert top_frames("no frames") == top_frames("") == top_frames(None) == ()


def test_the_root_cause_of_a_very_long_stack_is_found() -> None:
    filler = "\tat org.springframework.aop.Proxy.call(Proxy.java:1)\n" * 2_000
    cause = "\nCaused by: E: x\n\tat com.acme.A.b(A.java:1)\n"
    assert top_frames("E: x\n" + filler + cause) == ("com.acme.A.b",)


def test_what_follows_the_part_that_is_looked_at_changes_nothing() -> None:
    reason = "cannot parse body: " + "lorem ipsum " * 400
    assert of(reason + "1") == of(reason + "something else")


def test_a_long_reason_is_told_by_what_its_items_have_in_common_wherever_it_was_cut() -> None:
    items = [f"item {n} (A-{n * 7919}) of {n}.{n % 10} kg" for n in range(900)]
    assert of("late: " + ", ".join(items)) == of("late: " + ", ".join(items[7:500]))


texts = st.text(st.characters(), max_size=400) | st.text(
    st.sampled_from("aB1 .,:;=-_/\\'\"`<>()[]{}@$%?#\n\tx0"), max_size=400
)


@given(texts, texts, st.none() | texts, texts)
def test_nothing_raises_and_everything_is_bounded_and_repeatable(
    kind: str, reason: str, stack: str | None, queue: str
) -> None:
    first = of(reason, stack, kind=kind, queue=queue)
    assert len(first) == 16
    assert int(first, 16) >= 0
    assert of(reason, stack, kind=kind, queue=queue) == first
    assert len(normal_reason(reason)) <= MAX_TEMPLATE
    assert len(top_frames(stack)) <= MAX_FRAMES


@pytest.mark.parametrize(
    "unit",
    ["a", "1", "'", '"{', "a-", "1.", "<n>", "(a) ", "a=1,", "at ", "\n\tat a(", "://", "a.b@", "aB",
     "Mon, 12 Jan ", "1:1:", "aBcD", "x_", "{", '":1,', "::", "ab ", 'File "', "/tmp/", "?a=", "e1.",
     "Order(a=", "{a: ", "message {", "=(", "#<A ", "{a,b,", "a.rb:1", "values (", "aMessage", "\n1: a::"],
)  # fmt: skip
def test_no_input_takes_long(unit: str) -> None:
    text = unit * (65_536 // len(unit))
    begun = time.process_time()
    of(text, text)
    assert time.process_time() - begun < 0.1
