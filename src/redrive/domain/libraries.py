"""What is not the application's own: classes, packages and folders of runtimes and libraries.

A frame of a library says how something was done, a frame of the application what: only the latter
make the place of a failure. A library that is missing here costs little: its frames are taken for
the application's, so a place is told more finely than it should be.
"""

from __future__ import annotations

from typing import Final

from redrive.domain.reason_words import words

_PACKAGES: Final = words(
    "java javax jakarta jdk sun kotlin kotlinx scala groovy reactor rx feign okhttp3 retrofit2 "
    "akka oracle com.sun com.ibm com.oracle org.springframework org.hibernate org.apache "
    "org.postgresql com.mysql org.mariadb com.microsoft com.zaxxer com.rabbitmq com.fasterxml "
    "com.google com.squareup io.netty io.projectreactor io.reactivex io.micrometer "
    "net.bytebuddy org.aspectj org.slf4j org.eclipse io.grpc io.lettuce redis.clients "
    "com.mongodb software.amazon com.amazonaws com.azure io.vertx io.quarkus org.jboss "
    "io.github com.netflix org.codehaus org.redisson org.jooq org.quartz io.opentelemetry "
    "brave ch.qos org.bson com.hazelcast com.datastax org.elasticsearch io.smallrye "
    "io.undertow org.glassfish org.keycloak com.github org.mybatis com.baomidou com.alibaba "
    "org.jetbrains io.micronaut io.helidon org.h2 org.yaml org.json net.sf cats zio fs2 "
    # .NET
    "System Microsoft MassTransit NServiceBus Npgsql RabbitMQ Newtonsoft Dapper Polly MySql "
    "MySqlConnector StackExchange Grpc MediatR Autofac Castle FluentValidation AutoMapper "
    "MongoDB Oracle Azure Amazon GreenPipes EasyNetQ Rebus Refit Serilog NHibernate Hangfire "
    "Quartz NLog OpenTelemetry Nest Elastic Confluent LinqToDB Marten Wolverine RestSharp "
    "Flurl CsvHelper HotChocolate Orleans Akka Topshelf ServiceStack Elasticsearch"
)
"""First parts of the names of classes and functions."""
_GO_PACKAGES: Final = frozenset(
    [
        "runtime",
        "net",
        "database",
        "internal",
        "reflect",
        "sync",
        "testing",
        "panic",
        "syscall",
        "encoding",
        "io",
        "bufio",
        "context",
        "os",
        "fmt",
        "errors",
        "strconv",
        "crypto",
        "sort",
        "strings",
        "bytes",
        "time",
    ]
)
_RUST_CRATES: Final = words(
    "core std alloc tokio tokio_util futures futures_util hyper reqwest serde serde_json sqlx "
    "diesel anyhow tracing lapin actix_rt actix_web axum tower test rust_begin_unwind main "
    "rayon backtrace tonic sea_orm deadpool bb8 redis rdkafka async_std mio h2 rustls mongodb "
    "tokio_postgres chrono regex start_thread clone clone3 async_executor futures_core "
    "futures_executor futures_lite crossbeam"
)
ELIXIR_LIBRARIES: Final = tuple(
    f"({library}{end}"
    for library in words(
        "elixir stdlib kernel logger ecto ecto_sql postgrex myxql db_connection phoenix plug "
        "broadway broadway_rabbitmq gen_stage amqp amqp_client rabbit_common jason poison oban "
        "telemetry finch mint req tesla hackney httpoison redix decimal nimble_pool ssl inets"
    )
    for end in " )"
)
"""Applications in whose frames the file's path does not say that they are libraries."""
_FOLDERS: Final = (
    "site-packages", "dist-packages", "/lib/python", "/lib64/python", "/Lib/", "node_modules/",
    "/pkg/mod/", "/local/go/", "/lib/go", "/vendor/", "/gems/", "/lib/ruby/", "/rustc/",
    "cargo/registry/", "/deps/",
)  # fmt: skip
_FOLDERS_AT_START: Final = ("<", "node:", "internal/", "vendor/", "deps/", "[")


def is_library(name: str) -> bool:
    """Whether the name of a class of Java or .NET is that of a library."""
    first, _, rest = name.partition(".")
    return first in _PACKAGES or f"{first}.{rest.partition('.')[0]}" in _PACKAGES


def is_go_library(name: str) -> bool:
    return name.partition(".")[0].partition("/")[0] in _GO_PACKAGES


def is_rust_library(name: str) -> bool:
    crate = name.lstrip("<&").partition("::")[0].partition(" as ")[0]
    return crate in _RUST_CRATES or crate.startswith("_")


def is_library_path(path: str) -> bool:
    """Whether a file, its path written with slashes, is that of a library."""
    if path.startswith(_FOLDERS_AT_START):
        return True
    return any(folder in path for folder in _FOLDERS)
