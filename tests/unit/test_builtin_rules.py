"""What the built-in rules make of errors in many spellings, and what they leave to the default."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.domain.builtin_rules import BUILTIN_RULES, LONGEST_READ, words_of
from redrive.domain.failure import GENERAL_TYPES
from redrive.domain.strategy import DEFAULT, Chosen, Rules, Strategy
from tests.unit.error_corpus import samples
from tests.unit.error_corpus.once_held_out import KINDS as ONCE_HELD_OUT
from tests.unit.error_corpus.seen import KINDS as SEEN
from tests.unit.work.letters import a_letter

RULES = Rules((), BUILTIN_RULES, Strategy.MANUAL)


def choose(error_type: str, reason: str) -> Chosen:
    return RULES.choose(a_letter(error_type=error_type, error_reason=reason))


@pytest.mark.parametrize(
    ("error_type", "words"),
    [
        ("TIMEOUT_ERROR", "timeout error"),
        ("TimeoutError", "timeout error"),
        ("java.net.SocketTimeoutException", "java net socket timeout exception"),
        ("HTTP503Error", "http 503 error"),
        ("AMQPConnectionError", "amqp connection error"),
        ("*url.Error", "url error"),
        ("ECONNREFUSED", "econnrefused"),
        ("rate-limit", "rate limit"),
        ("", ""),
    ],
)
def test_an_error_type_is_read_as_its_words(error_type: str, words: str) -> None:
    assert words_of(error_type) == words


@pytest.mark.parametrize(
    "error_type",
    [
        "TIMEOUT_ERROR",
        "TimeoutError",
        "timeout",
        "java.net.SocketTimeoutException",
        "System.TimeoutException",
        "asyncio.exceptions.TimeoutError",
        "requests.exceptions.ReadTimeout",
        "httpx.ConnectTimeout",
        "MassTransit.RequestTimeoutException",
        "pymongo.errors.ServerSelectionTimeoutError",
        "DEADLINE_EXCEEDED",
        "ETIMEDOUT",
        "celery.exceptions.SoftTimeLimitExceeded",
    ],
)
def test_a_type_that_says_timeout_is_immediate(error_type: str) -> None:
    chosen = choose(error_type, "it failed")
    assert (chosen.strategy, chosen.rule) == (Strategy.IMMEDIATE, "built-in: timeouts")


@pytest.mark.parametrize(
    "reason",
    [
        "External API timeout after 5000ms",
        "Error: timeout",
        "Read timed out. (read timeout=30)",
        "context deadline exceeded (Client.Timeout exceeded while awaiting headers)",
        "The request was canceled due to the configured HttpClient.Timeout of 41 seconds elapsing.",
        "canceling statement due to statement timeout",
        "Lock wait timeout exceeded; try restarting transaction",
        "connect ETIMEDOUT 10.0.0.1:443",
        "the partner did not respond within 30 s",
    ],
)
def test_a_reason_that_says_timeout_is_immediate(reason: str) -> None:
    chosen = choose("Error", reason)
    assert (chosen.strategy, chosen.rule) == (Strategy.IMMEDIATE, "built-in: timeouts")


@pytest.mark.parametrize(
    "error_type",
    [
        "ECONNREFUSED",
        "ECONNRESET",
        "EPIPE",
        "CONNECTION_ERROR",
        "ConnectionRefusedError",
        "requests.exceptions.ConnectionError",
        "java.net.ConnectException",
        "java.net.SocketException",
        "java.net.UnknownHostException",
        "java.sql.SQLTransientConnectionException",
        "com.mysql.cj.jdbc.exceptions.CommunicationsException",
        "System.Net.Sockets.SocketException",
        "aiohttp.client_exceptions.ServerDisconnectedError",
        "psycopg.OperationalError",
        "psycopg2.OperationalError",
        "pika.exceptions.AMQPConnectionError",
        "BrokenPipeError",
        "NETWORK_ERROR",
    ],
)
def test_a_type_that_says_connection_is_immediate(error_type: str) -> None:
    chosen = choose(error_type, "it failed")
    assert (chosen.strategy, chosen.rule) == (Strategy.IMMEDIATE, "built-in: connection errors")


@pytest.mark.parametrize(
    "reason",
    [
        "connect ECONNREFUSED ::1:443",
        "dial tcp 10.2.0.7:5432: connect: connection refused",
        "read tcp 10.0.0.1:443: connection reset by peer",
        "No connection could be made because the target machine actively refused it.",
        "could not connect to server: No such file or directory",
        "server closed the connection unexpectedly",
        "MySQL server has gone away",
        "socket hang up",
        "write: broken pipe",
        "getaddrinfo EAI_AGAIN db.internal",
        "Temporary failure in name resolution",
        "lookup db.internal: no such host",
        "FATAL: sorry, too many clients already",
        "rpc error: code = Unavailable desc = transport is closing",
        "java.net.UnknownHostException: payments.internal",
    ],
)
def test_a_reason_that_says_connection_is_immediate(reason: str) -> None:
    chosen = choose("Error", reason)
    assert (chosen.strategy, chosen.rule) == (Strategy.IMMEDIATE, "built-in: connection errors")


@pytest.mark.parametrize(
    ("error_type", "reason"),
    [
        ("HTTP_500", "it failed"),
        ("HTTP503", "it failed"),
        ("InternalServerError", "it failed"),
        ("org.springframework.web.client.HttpServerErrorException$BadGateway", "502 Bad Gateway"),
        (
            "org.springframework.web.client.HttpServerErrorException$ServiceUnavailable",
            "503 Service Unavailable: [no body]",
        ),
        ("Error", "HTTP 503"),
        ("Error", "HTTP/1.1 502 Bad Gateway"),
        ("Error", "HTTP Error 503: Service Unavailable"),
        ("Error", "Server returned HTTP response code: 503 for URL: https://a/b"),
        ("Error", "Request failed with status code 503"),
        ("Error", "Response status code does not indicate success: 503 (Service Unavailable)."),
        ("Error", "503 Server Error: Service Unavailable for url: https://a/b"),
        ("Error", "Server error '500 Internal Server Error' for url 'https://a'"),
        ("Error", 'the answer was {"statusCode":503,"body":""}'),
        ("Error", "the answer was {httpStatus=504}"),
        ("Error", "unexpected status: 500"),
        ("Error", "payments returned 500"),
        ("Error", "payments responded with 502, giving up"),
        ("Error", "upstream: Gateway Time-out"),
        ("Error", "(Service: S3, Status Code: 503, Request ID: A1)"),
        ("Error", "error code: 522"),
    ],
)
def test_any_5xx_is_immediate_also_a_plain_503(error_type: str, reason: str) -> None:
    chosen = choose(error_type, reason)
    assert (chosen.strategy, chosen.rule) == (Strategy.IMMEDIATE, "built-in: server errors")


@pytest.mark.parametrize(
    ("error_type", "reason"),
    [
        ("RateLimitError", "it failed"),
        ("RATE_LIMITED", "it failed"),
        ("TooManyRequestsException", "it failed"),
        ("ThrottlingException", "Rate exceeded"),
        ("ProvisionedThroughputExceededException", "it failed"),
        ("QuotaExceeded", "it failed"),
        ("google.api_core.exceptions.ResourceExhausted", "it failed"),
        ("HTTP_429", "it failed"),
        ("Error", "Request failed with status code 429"),
        ("Error", "429 Client Error: Too Many Requests for url: https://a"),
        ("Error", "HTTP 429"),
        ("Error", "API rate limit exceeded for 10.0.0.1"),
        ("Error", "you are being rate-limited"),
        ("Error", "the request was throttled"),
        ("Error", "quota of volume exceeded (65.6% used)"),
        ("Error", "You exceeded your current quota, please check your plan"),
        ("Error", "rpc error: code = ResourceExhausted desc = slow"),
        ("Error", "SlowDown: Please reduce your request rate. (Status Code: 503)"),
    ],
)
def test_rate_limits_and_quotas_are_scheduled(error_type: str, reason: str) -> None:
    chosen = choose(error_type, reason)
    assert chosen.strategy is Strategy.SCHEDULED
    assert chosen.rule == "built-in: rate limits and quotas"


@pytest.mark.parametrize(
    ("error_type", "reason"),
    [
        ("CircuitBreakerOpenException", "it failed"),
        ("pybreaker.CircuitBreakerError", "Timeout not elapsed yet, circuit breaker still open"),
        (
            "io.github.resilience4j.circuitbreaker.CallNotPermittedException",
            "CircuitBreaker 'rates' is OPEN and does not permit further calls",
        ),
        ("Polly.CircuitBreaker.BrokenCircuitException", "The circuit is now open"),
        ("MAINTENANCE_MODE", "it failed"),
        ("Error", "HTTP 503: the bank is down for maintenance until 6:00"),
        ("Error", "no healthy upstream"),
        ("Error", "payments is affected by a provider outage"),
        ("Error", "the backend is currently down"),
        ("Error", "FATAL: the database system is starting up"),
    ],
)
def test_outages_are_conditional(error_type: str, reason: str) -> None:
    chosen = choose(error_type, reason)
    assert (chosen.strategy, chosen.rule) == (Strategy.CONDITIONAL, "built-in: outages")


@pytest.mark.parametrize(
    ("error_type", "reason"),
    [
        ("SERVICE_UNAVAILABLE", "it failed"),
        ("ServiceUnavailableException", "no answer"),
        ("Error", "the service is temporarily unavailable"),
        ("Error", "service unavailable"),
    ],
)
def test_a_service_that_is_called_unavailable_without_a_code_is_conditional(
    error_type: str, reason: str
) -> None:
    chosen = choose(error_type, reason)
    assert chosen.strategy is Strategy.CONDITIONAL
    assert chosen.rule == "built-in: unavailable services"


@pytest.mark.parametrize(
    ("error_type", "reason"),
    [
        ("Error", "status 5000"),
        ("Error", "unknown status 50"),
        ("NotFoundError", "customer 502 not found"),
        ("Error", "order 503 service fee missing"),
        ("Error", "the query returned 500 rows"),
        ("Error", "amount 500.00 is over the limit"),
        ("Error", "got 504 items, expected 505"),
        ("SmtpError", "550 5.1.1 <a@b.c>: Recipient address rejected"),
        ("SqlException", "error code 547: conflict with the FOREIGN KEY constraint"),
        ("Error", "Request failed with status code 404"),
        ("Error", "Request failed with status code 4290"),
        ("ConfigError", "invalid timeout -5"),
        ("ConfigError", "unknown property 'connectionTimeout'"),
        ("TypeError", "get(url, timeout=5) got an unexpected keyword argument"),
        ("ValidationError", "timeout must be a whole number"),
        ("Error", "could not connect bank account of customer 7"),
        ("Error", "maintenance fee could not be charged"),
        ("RefundRefused", "Refund exceeds what is left of payment (limit resets 1754686875)"),
        ("LimitError", "transaction limit exceeded"),
        ("KeyError", "'rate'"),
        ("Error", "invalid rate limit 'fast'"),
        ("PaymentDeclined", "declined by issuer: insufficient funds"),
        ("NullPointerException", ""),
        ("sqlite3.OperationalError", "no such table: orders"),
    ],
)
def test_what_only_looks_like_one_of_them_is_left_to_the_default(
    error_type: str, reason: str
) -> None:
    chosen = choose(error_type, reason)
    assert (chosen.strategy, chosen.rule) == (Strategy.MANUAL, DEFAULT), chosen.why


TRANSIENT = {
    "java-hikari-exhausted": Strategy.IMMEDIATE,
    "dotnet-tax-503": Strategy.IMMEDIATE,
    "python-carrier-refused": Strategy.IMMEDIATE,
    "python-celery-soft-limit": Strategy.IMMEDIATE,
    "go-rates-refused-standard": Strategy.IMMEDIATE,
    "go-rates-refused-express": Strategy.IMMEDIATE,
    "node-push-refused": Strategy.IMMEDIATE,
    "dotnet-http-timeout": Strategy.IMMEDIATE,
    "dotnet-response-timeout-quotes": Strategy.IMMEDIATE,
    "dotnet-response-timeout-renewals": Strategy.IMMEDIATE,
    "python-geocoder-timeout": Strategy.IMMEDIATE,
    "go-customs-deadline": Strategy.IMMEDIATE,
    "node-menu-503": Strategy.IMMEDIATE,
    "text-disk-quota": Strategy.SCHEDULED,
}


def test_of_real_errors_only_those_that_pass_by_themselves_are_revived() -> None:
    wrong = [
        (sample.kind, sample.reason[:200])
        for sample in samples([*SEEN, *ONCE_HELD_OUT], variants=10)
        if choose(sample.error_type, sample.reason).strategy
        is not TRANSIENT.get(sample.kind, Strategy.MANUAL)
    ]
    assert wrong == []


@pytest.mark.parametrize("error_type", sorted(GENERAL_TYPES))
def test_without_failure_information_no_builtin_rule_matches(error_type: str) -> None:
    chosen = choose(error_type, "connection refused: HTTP 503 after a timeout")
    assert (chosen.strategy, chosen.rule) == (Strategy.MANUAL, DEFAULT)
    assert error_type in chosen.why


def test_why_quotes_the_words_of_the_reason_as_they_were_written() -> None:
    chosen = choose("AxiosError", "connect ECONNREFUSED ::1:443")
    assert chosen.why == "the reason says 'ECONNREFUSED'"
    assert chosen.quotes_reason


def test_why_names_the_error_type_and_what_it_says() -> None:
    chosen = choose("java.net.SocketTimeoutException", "Read timed out")
    assert chosen.why == "error type 'java.net.SocketTimeoutException' says 'timeout'"
    assert not chosen.quotes_reason


def test_only_the_beginning_of_a_long_reason_is_read() -> None:
    assert choose("Error", "x " * (LONGEST_READ // 2) + "timed out").rule == DEFAULT


@given(st.text(max_size=200), st.text(max_size=3000))
def test_any_text_has_a_strategy(error_type: str, reason: str) -> None:
    assert choose(error_type, reason).strategy in Strategy


@pytest.mark.parametrize(
    "hard", ["circuit ", "quota a ", "connection is ", "returned the ", "exceeded a b ", "http_"]
)
def test_no_reason_takes_long_to_read(hard: str) -> None:
    # A pattern that tried all ways would need years for this, and the test's own deadline.
    assert choose("Error", hard * 1000).why
