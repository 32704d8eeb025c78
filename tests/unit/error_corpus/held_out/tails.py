"""Library frames that only the kinds of this half show; how many of them is incidental."""
# ruff: noqa: E501 - a log line is as long as it is

from __future__ import annotations

import random
from collections.abc import Callable

KAFKA_LOOP = """\
at org.springframework.kafka.listener.KafkaMessageListenerContainer$ListenerConsumer.pollConsumer(KafkaMessageListenerContainer.java:{{line}})
at org.springframework.kafka.listener.KafkaMessageListenerContainer$ListenerConsumer.doPoll(KafkaMessageListenerContainer.java:{{line}})
at org.springframework.kafka.listener.KafkaMessageListenerContainer$ListenerConsumer.pollAndInvoke(KafkaMessageListenerContainer.java:{{line}})
at org.springframework.kafka.listener.KafkaMessageListenerContainer$ListenerConsumer.run(KafkaMessageListenerContainer.java:{{line}})
at java.base/java.util.concurrent.CompletableFuture$AsyncRun.run(CompletableFuture.java:{{line}})
at java.base/java.lang.Thread.run(Thread.java:{{line}})"""

SIDEKIQ = """\
/usr/local/bundle/gems/sidekiq-7.{{int:0-3#sidekiq}}.{{int:0-9#sidekiq}}/lib/sidekiq/processor.rb:{{line}}:in `execute_job'
/usr/local/bundle/gems/sidekiq-7.{{int:0-3#sidekiq}}.{{int:0-9#sidekiq}}/lib/sidekiq/middleware/chain.rb:{{line}}:in `invoke'
/usr/local/bundle/gems/sidekiq-7.{{int:0-3#sidekiq}}.{{int:0-9#sidekiq}}/lib/sidekiq/job_retry.rb:{{line}}:in `local'
/usr/local/bundle/gems/activesupport-7.{{int:0-2#activesupport}}.{{int:0-9#activesupport}}/lib/active_support/reloader.rb:{{line}}:in `block in wrap'
/usr/local/bundle/gems/sidekiq-7.{{int:0-3#sidekiq}}.{{int:0-9#sidekiq}}/lib/sidekiq/processor.rb:{{line}}:in `process_one'
/usr/local/bundle/gems/sidekiq-7.{{int:0-3#sidekiq}}.{{int:0-9#sidekiq}}/lib/sidekiq/component.rb:{{line}}:in `watchdog'"""

MESSENGER = """\
 /var/www/vendor/symfony/messenger/Handler/HandlerDescriptor.php({{line}}): call_user_func()
 /var/www/vendor/symfony/messenger/Middleware/HandleMessageMiddleware.php({{line}}): Symfony\\Component\\Messenger\\Middleware\\HandleMessageMiddleware->callHandler(Object(Closure), Object(App\\Message\\Envelope), NULL, Array)
 /var/www/vendor/symfony/messenger/Middleware/SendMessageMiddleware.php({{line}}): Symfony\\Component\\Messenger\\Middleware\\HandleMessageMiddleware->handle(Object(Symfony\\Component\\Messenger\\Envelope), Object(Symfony\\Component\\Messenger\\Middleware\\StackMiddleware))
 /var/www/vendor/symfony/messenger/MessageBus.php({{line}}): Symfony\\Component\\Messenger\\Middleware\\AddBusNameStampMiddleware->handle(Object(Symfony\\Component\\Messenger\\Envelope), Object(Symfony\\Component\\Messenger\\Middleware\\StackMiddleware))
 /var/www/vendor/symfony/messenger/Worker.php({{line}}): Symfony\\Component\\Messenger\\RoutableMessageBus->dispatch(Object(Symfony\\Component\\Messenger\\Envelope))
 /var/www/vendor/symfony/console/Application.php({{line}}): Symfony\\Component\\Messenger\\Command\\ConsumeMessagesCommand->execute(Object(Symfony\\Component\\Console\\Input\\ArgvInput), Object(Symfony\\Component\\Console\\Output\\ConsoleOutput))"""

TOKIO = """\
core::ops::function::FnOnce::call_once{{vtable.shim}}
tokio::runtime::task::core::Core<T,S>::poll
tokio::runtime::scheduler::multi_thread::worker::Context::run_task
tokio::runtime::scheduler::multi_thread::worker::run
std::sys::backtrace::__rust_begin_short_backtrace
std::sys::pal::unix::thread::Thread::new::thread_start"""

BROADWAY = """\
    (broadway 1.{{int:0-2#broadway}}.{{int:0-9#broadway}}) lib/broadway/topology/processor_stage.ex:{{line}}: anonymous fn/6 in Broadway.Topology.ProcessorStage.handle_messages/4
    (telemetry 1.{{int:0-3#telemetry}}.0) /app/deps/telemetry/src/telemetry.erl:{{line}}: :telemetry.span/3
    (gen_stage 1.{{int:0-2#gen_stage}}.{{int:0-9#gen_stage}}) lib/gen_stage.ex:{{line}}: GenStage.consumer_dispatch/6
    (stdlib {{int:4-6#stdlib}}.{{int:0-3#stdlib}}) gen_server.erl:{{line}}: :gen_server.try_handle_info/3
    (stdlib {{int:4-6#stdlib}}.{{int:0-3#stdlib}}) proc_lib.erl:{{line}}: :proc_lib.init_p_do_apply/3"""


def _some(rng: random.Random, frames: str, least: int = 1) -> list[str]:
    lines = frames.split("\n")
    return lines[: rng.randint(least, len(lines))]


def followed_by(head: str, frames: str, *causes: str) -> Callable[[random.Random], str]:
    """A stack whose head some of the frames follow; then come its causes."""
    return lambda rng: "\n".join((head, *_some(rng, frames), *causes))


def php(head: str, first: int) -> Callable[[random.Random], str]:
    """PHP numbers its frames; `first` is the number after the head's own."""

    def stack(rng: random.Random) -> str:
        tail = _some(rng, MESSENGER)
        numbered = [f"#{first + at}{frame}" for at, frame in enumerate(tail)]
        return "\n".join((head, *numbered, f"#{first + len(tail)} {{main}}"))

    return stack


def rust(head: str, first: int) -> Callable[[random.Random], str]:
    """Rust numbers its frames, too, and aligns the numbers."""

    def stack(rng: random.Random) -> str:
        tail = _some(rng, TOKIO, least=2)
        return "\n".join((head, *(f"{first + at:4}: {name}" for at, name in enumerate(tail))))

    return stack
