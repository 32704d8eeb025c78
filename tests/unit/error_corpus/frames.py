"""Library frames below an application's own: how many of them a trace shows is incidental."""
# ruff: noqa: E501 - a log line is as long as it is

from __future__ import annotations

FRAMES: dict[str, str] = {
    "reflect": """\
at java.base/jdk.internal.reflect.DirectMethodHandleAccessor.invoke(DirectMethodHandleAccessor.java:{{line}})
at java.base/java.lang.reflect.Method.invoke(Method.java:{{line}})
at org.springframework.messaging.handler.invocation.InvocableHandlerMethod.doInvoke(InvocableHandlerMethod.java:{{line}})
at org.springframework.messaging.handler.invocation.InvocableHandlerMethod.invoke(InvocableHandlerMethod.java:{{line}})
at org.springframework.amqp.rabbit.listener.adapter.HandlerAdapter.invoke(HandlerAdapter.java:{{line}})
at org.springframework.amqp.rabbit.listener.adapter.MessagingMessageListenerAdapter.invokeHandler(MessagingMessageListenerAdapter.java:{{line}})
at org.springframework.amqp.rabbit.listener.adapter.MessagingMessageListenerAdapter.onMessage(MessagingMessageListenerAdapter.java:{{line}})
at org.springframework.amqp.rabbit.listener.AbstractMessageListenerContainer.doInvokeListener(AbstractMessageListenerContainer.java:{{line}})
at org.springframework.amqp.rabbit.listener.AbstractMessageListenerContainer.executeListener(AbstractMessageListenerContainer.java:{{line}})
at org.springframework.amqp.rabbit.listener.SimpleMessageListenerContainer.receiveAndExecute(SimpleMessageListenerContainer.java:{{line}})
at org.springframework.amqp.rabbit.listener.SimpleMessageListenerContainer$AsyncMessageProcessingConsumer.run(SimpleMessageListenerContainer.java:{{line}})
at java.base/java.lang.Thread.run(Thread.java:{{line}})""",
    "pool": """\
at java.base/java.util.concurrent.FutureTask.run(FutureTask.java:{{line}})
at java.base/java.util.concurrent.ThreadPoolExecutor.runWorker(ThreadPoolExecutor.java:{{line}})
at java.base/java.util.concurrent.ThreadPoolExecutor$Worker.run(ThreadPoolExecutor.java:{{line}})
at java.base/java.lang.Thread.run(Thread.java:{{line}})""",
    "aop": """\
at org.springframework.cglib.proxy.MethodProxy.invoke(MethodProxy.java:{{line}})
at org.springframework.aop.framework.CglibAopProxy$CglibMethodInvocation.invokeJoinpoint(CglibAopProxy.java:{{line}})
at org.springframework.transaction.interceptor.TransactionAspectSupport.invokeWithinTransaction(TransactionAspectSupport.java:{{line}})
at org.springframework.transaction.interceptor.TransactionInterceptor.invoke(TransactionInterceptor.java:{{line}})""",
    "masstransit": """\
at MassTransit.Middleware.MethodConsumerMessageFilter`2.MassTransit.IFilter<MassTransit.ConsumerConsumeContext<TConsumer,TMessage>>.Send(ConsumerConsumeContext`2 context, IPipe`1 next) in /_/src/MassTransit/Middleware/MethodConsumerMessageFilter.cs:line {{line}}
at MassTransit.Middleware.LastPipe`1.Send(TContext context) in /_/src/MassTransit/Middleware/LastPipe.cs:line {{line}}
at MassTransit.DependencyInjection.ScopeConsumerFactory`1.Send[TMessage](ConsumeContext`1 context, IPipe`1 next) in /_/src/MassTransit/DependencyInjection/DependencyInjection/ScopeConsumerFactory.cs:line {{line}}
at MassTransit.Middleware.ConsumerMessageFilter`2.MassTransit.IFilter<MassTransit.ConsumeContext<TMessage>>.Send(ConsumeContext`1 context, IPipe`1 next) in /_/src/MassTransit/Middleware/ConsumerMessageFilter.cs:line {{line}}
at MassTransit.Middleware.RetryFilter`1.MassTransit.IFilter<TContext>.Send(TContext context, IPipe`1 next) in /_/src/MassTransit/Middleware/RetryFilter.cs:line {{line}}""",
    "amqplib": """\
at Channel.dispatchMessage (/{{pick:app|srv/app|usr/src/app}}/node_modules/amqplib/lib/channel_model.js:{{line}}:{{int:3-40}})
at Channel.BaseChannel.handleDelivery (/app/node_modules/amqplib/lib/channel.js:{{line}}:{{int:3-40}})
at Channel.emit (node:events:{{line}}:{{int:3-40}})
at ConnectionWrapper.acceptMessage (/app/node_modules/amqplib/lib/connection.js:{{line}}:{{int:3-40}})
at Socket.emit (node:events:{{line}}:{{int:3-40}})
at emitReadable_ (node:internal/streams/readable:{{line}}:{{int:3-40}})
at process.processTicksAndRejections (node:internal/process/task_queues:{{line}}:{{int:3-21}})""",
    "ticks": """\
at process.processTicksAndRejections (node:internal/process/task_queues:{{line}}:{{int:3-21}})
at async Promise.all (index {{int:0-9}})
at async Worker.run (/app/node_modules/amqp-worker/dist/worker.js:{{line}}:{{int:3-40}})
at async /app/node_modules/amqp-worker/dist/consume.js:{{line}}:{{int:3-40}}""",
    "goworker": """\
github.com/rabbitmq/amqp091-go/worker.(*Pool).run(0xc000{{hex:6}}, {0x{{hex:6}}, 0xc000{{hex:6}}})
	/go/pkg/mod/github.com/rabbitmq/amqp091-go@v1.{{int:5-10}}.0/worker/pool.go:{{line}} +0x{{hex:3}}
created by github.com/rabbitmq/amqp091-go/worker.(*Pool).Start in goroutine {{int:1-900}}
	/go/pkg/mod/github.com/rabbitmq/amqp091-go@v1.{{int:5-10}}.0/worker/pool.go:{{line}} +0x{{hex:3}}""",
}

# A Go frame is two lines.
LINES_A_FRAME = {"goworker": 2}
