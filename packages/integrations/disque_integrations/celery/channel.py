"""A kombu channel: publishes, declares and consumes with Disque commands.

Queues are Disque queues. Bindings of queues to exchanges are bindings to Disque topics, so that all
programs know them. The topic of an exchange is the exchange's name, without its dots, followed by a
dot and the routing key. Messages to a fanout exchange have no routing key, and its queues accept
any.
"""

import math
import os
import time
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from queue import Empty
from typing import Any, Final, Protocol

import trio
from kombu.transport import virtual

from disque_integrations.celery import messages, revoking
from disque_integrations.celery.consumer import MAX_CREDIT, Consumer, refuse
from disque_integrations.celery.exchanges import DirectExchange, FanoutExchange, TopicExchange
from disque_integrations.celery.inbox import Inbox
from disque_integrations.celery.messages import Message
from disque_integrations.celery.options import TransportOptions
from disque_integrations.express import Express
from disque_trio.client import (
    AddManyError,
    ConnectionLost,
    DisqueError,
    HeldJob,
    Job,
    NoUniqueError,
)
from disque_trio.client import Client as AsyncClient
from disque_trio.client.requests import addjob, new_key
from disque_trio.client.sync import Client
from disque_trio.client.urls import Cluster
from disque_trio.job_options import JobOptions
from disque_trio.respclient.log import library_log

_log = library_log("disque.celery")

_WITHOUT_KEYS: Final = 60.0
"""Seconds for which messages are added without keys after nodes could not agree on a key."""


class QoS:
    """Settles messages for kombu. The node counts how many are unacknowledged."""

    def __init__(self, channel: "Channel") -> None:
        self.prefetch_count = 0
        self._channel = channel

    def can_consume(self) -> bool:
        """Return True: the node never sends more messages than allowed."""
        return True

    def append(self, message: Any, delivery_tag: str) -> None:
        """Do nothing when a message is delivered."""

    def ack(self, delivery_tag: str) -> None:
        """Acknowledge a message."""
        self._channel.ack(delivery_tag)

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        """Reject a message: it is queued again, or goes to the dead letters."""
        if requeue:
            self._channel.settle(HeldJob.nack, delivery_tag)
        else:
            self._channel.settle(refuse, delivery_tag)

    def restore_unacked(self) -> None:
        """Give back unacknowledged messages."""
        self._channel.give_back()

    def restore_unacked_once(self, stderr: Any = None) -> None:
        """Give back unacknowledged messages, since the channel is closing."""
        self._channel.give_back()


class Link(Protocol):
    """The connection that a channel belongs to.

    Attributes:
        client: kombu's connection.
        inbox: where messages arrive; None if the connection is closed.
        disque: the client.
        cluster: its nodes.
        express: the short way to the client's node.
    """

    client: Any
    options: TransportOptions
    inbox: Inbox | None

    @property
    def disque(self) -> Client: ...
    @property
    def cluster(self) -> Cluster: ...
    @property
    def express(self) -> Express: ...
    def lost(self) -> None: ...
    def _deliver(self, message: Message, queue: str) -> None: ...


class Channel(virtual.Channel):
    """A channel of a ``Transport``."""

    connection: Link

    QoS = QoS
    exchange_types = {  # noqa: RUF012 - kombu's way
        "direct": DirectExchange,
        "topic": TopicExchange,
        "fanout": FanoutExchange,
    }
    supports_fanout = True
    body_encoding = None
    do_restore = False

    def __init__(self, connection: Link, **kwargs: Any) -> None:
        super().__init__(connection, **kwargs)
        self._options = connection.options
        self._disque = connection.disque
        self._express = connection.express
        self._no_ack: set[str] = set()
        self._temporary: set[str] = set()
        self._consumer: Consumer | None = None
        self._token: trio.lowlevel.TrioToken | None = None
        self._done: deque[str] = deque()  # ids of jobs to acknowledge
        self._acknowledging = False
        self._no_keys_until = 0.0
        self._pid = os.getpid()

    # ---- publishing -----------------------------------------------------------------------------

    def _put(self, queue: str, message: Message, **kwargs: Any) -> None:
        self.put(queue, message)

    def put(self, queue: str, message: Message) -> None:
        """Add a message to a queue. If this raises DisqueError, it may or may not be there."""
        self._add(self._disque.add, self._name(queue), message, topic=False)

    def publish(self, exchange: str, routing_key: str | None, message: Message) -> None:
        """Add a message to all queues that are bound on the server. Raises DisqueError."""
        topic = self._topic(exchange, routing_key)
        # Celery marks commands for workers as persistent.
        if messages.transient(message) or exchange.endswith(revoking.PIDBOX):
            body, ttl = messages.encode(message), self._options.transient_ttl
            self._publish(topic, body, replicate=1, retry=0, ttl=ttl)
            if ids := revoking.revoked(exchange, message):
                revoking.cancel(self.connection, exchange, ids)
            return
        self._add(self._publish, topic, message, topic=True)

    def _publish(self, topic: str, body: bytes, **options: Any) -> None:
        """Add a job to each queue of a topic. Raises the error of the first that was not added."""
        try:
            self._disque.publish(topic, body, **options)
        except AddManyError as error:
            raise error.first from None

    def _add(self, add: Callable[..., object], to: str, message: Message, *, topic: bool) -> None:
        try:
            self._try_to_add(add, to, message, topic)
        except ConnectionLost:
            self.connection.lost()
            raise

    def _try_to_add(
        self, add: Callable[..., object], to: str, message: Message, topic: bool
    ) -> None:
        at = messages.due(message["headers"])
        ttl: float | None = messages.expires(message)
        ttl = self._options.ttl if ttl is None else max(ttl, 1)
        if at is not None:
            ttl += max(at - time.time(), 0) + 1
        body, headers = messages.encode(message), messages.headers(message)
        timeout = self._options.add_timeout
        options = JobOptions(
            replicate=self._options.replicate,
            retry=self._options.retry,
            at=at,
            ttl=math.ceil(ttl),
            priority=messages.priority(message),
        )
        if self._options.unique and time.monotonic() >= self._no_keys_until:
            key, kept = new_key(), self._options.kept
            if not topic:
                command = addjob(to, body, timeout, headers=headers, key=key, kept=kept, **options)
                if self._express.ask(to, command) is not None:
                    return
            try:
                add(
                    to,
                    body,
                    timeout=timeout,
                    headers=headers,
                    unique=key,
                    unique_for=kept,
                    **options,
                )
                return
            except NoUniqueError:
                # Too few nodes are up to agree. Do not wait for them again and again.
                self._no_keys_until = time.monotonic() + _WITHOUT_KEYS
        add(to, body, timeout=timeout, headers=headers, **options)

    def _next_delivery_tag(self) -> str:
        return ""  # set to the job's id when the job arrives

    def _name(self, queue: str) -> str:
        return self._options.queue_prefix + queue

    def _topic(self, exchange: str, routing_key: str | None) -> str:
        name = self._name(exchange).replace(".", "/")
        return name if routing_key is None else f"{name}.{routing_key}"

    # ---- declaring ------------------------------------------------------------------------------

    def queue_declare(self, queue: str | None = None, passive: bool = False, **kwargs: Any) -> Any:
        declared = super().queue_declare(queue, passive, **kwargs)
        if kwargs.get("auto_delete") or kwargs.get("exclusive"):
            self._temporary.add(declared.queue)
        return declared

    def _has_queue(self, queue: str, **kwargs: Any) -> bool:
        return self._disque.qstat(self._name(queue)) is not None

    def _queue_bind(self, exchange: str, routing_key: str, pattern: str | None, queue: str) -> None:
        self._disque.bind(self._bound(exchange, routing_key), self._name(queue))

    def queue_unbind(
        self,
        queue: str,
        exchange: str | None = None,
        routing_key: str = "",
        arguments: Any = None,
        **kwargs: Any,
    ) -> None:
        super().queue_unbind(queue, exchange, routing_key, arguments, **kwargs)
        self._unbind(queue, exchange or "amq.direct", routing_key)

    def _unbind(self, queue: str, exchange: str, routing_key: str) -> None:
        self._disque.unbind(self._bound(exchange, routing_key), self._name(queue))

    def _bound(self, exchange: str, routing_key: str) -> str:
        """Return the topic to which a queue is bound. A program that has not declared a fanout
        exchange does not know its type, and uses a routing key."""
        fanout = self.typeof(exchange).type == "fanout"
        return self._topic(exchange, "#" if fanout else routing_key)

    def _delete(
        self, queue: str, exchange: str, routing_key: str, pattern: Any, bound: str, **kwargs: Any
    ) -> None:
        self._unbind(queue, exchange, routing_key)
        table = self.state.exchanges.get(exchange, {}).get("table", [])
        table[:] = [meta for meta in table if meta[2] != queue]
        self._purge(queue)

    def _purge(self, queue: str) -> int:
        return self._disque.purge(self._name(queue))

    def _size(self, queue: str) -> int:
        return self._disque.qlen(self._name(queue))

    # ---- consuming ------------------------------------------------------------------------------

    def basic_consume(
        self, queue: str, no_ack: bool, callback: Any, consumer_tag: str, **kwargs: Any
    ) -> None:
        super().basic_consume(queue, no_ack, callback, consumer_tag, **kwargs)
        if no_ack:
            self._no_ack.add(queue)
        self._want()

    def basic_cancel(self, consumer_tag: str) -> None:
        queue = self._tag_to_queue.get(consumer_tag)
        super().basic_cancel(consumer_tag)
        if queue is not None:
            self._no_ack.discard(queue)
            self._want()
            if queue in self._temporary:
                self._temporary.discard(queue)
                self.queue_delete(queue)

    def basic_qos(
        self, prefetch_size: int = 0, prefetch_count: int = 0, apply_global: bool = False
    ) -> None:
        super().basic_qos(prefetch_size, prefetch_count, apply_global)
        if self._consumer is not None:
            self._want()

    def basic_get(self, queue: str, no_ack: bool = False, **kwargs: Any) -> Any:
        try:
            job = self._get(queue)
        except Empty:
            return None
        if no_ack:
            self._disque.ack(job.id)
        else:
            keep = self._started().keep
            self._disque.run(lambda _: keep(job))
        return self.Message(messages.decode(job), channel=self)

    def _get(self, queue: str, timeout: float | None = None) -> Job:
        if (consumer := self._consumer) is not None:  # a job that it hands back may be the next
            self._disque.run(lambda _: consumer.settled())
        jobs = self._disque.get(self._name(queue), nohang=True)
        if not jobs:
            raise Empty
        return jobs[0]

    def _want(self) -> None:
        """Tell the consumer which queues and how many jobs are wanted now."""
        queues = [self._name(queue) for queue in dict.fromkeys(self._active_queues)]
        credit = self.qos.prefetch_count or MAX_CREDIT
        if not self.closed and (queues or self._consumer is not None):
            self._in_loop(partial(self._started().want, queues, credit))

    def _started(self) -> Consumer:
        if self.closed:
            raise ConnectionLost("the channel is closed, and its messages were given back")
        if self._consumer is None:
            inbox = self.connection.inbox
            assert inbox is not None

            async def start(client: AsyncClient) -> Consumer:
                self._token = trio.lowlevel.current_trio_token()
                return client.run_source(
                    lambda router, in_flight: Consumer(
                        router,
                        in_flight,
                        lambda job: inbox.put(partial(self._arrived, job)),
                        lambda error: inbox.put(partial(_raise, error)),
                    )
                )

            self._consumer = self._disque.run(start)
        return self._consumer

    def _arrived(self, job: Job) -> None:
        """Deliver a job, in the connection's thread."""
        queue = job.queue.removeprefix(self._options.queue_prefix)
        if self._consumer is None or not self._consumer.take(job.id):
            return  # it was given back
        if queue not in self._active_queues:
            self.settle(HeldJob.requeue, job.id)
            return
        try:
            message = messages.decode(job)
        except ValueError as error:
            _log.error("job is not a message", job=job.id, queue=job.queue, error=str(error))
            self.settle(refuse, job.id)
            return
        if queue in self._no_ack:
            self.ack(job.id)
        self.connection._deliver(message, queue)

    # ---- settling, without waiting for replies --------------------------------------------------

    def settle(self, how: Callable[[HeldJob], Awaitable[None]], id: str) -> None:
        """Settle a job with ``HeldJob.nack``, for example. Raises ConnectionLost if it was given
        back."""
        self._in_loop(partial(self._started().settle, how, [id]))

    def ack(self, id: str) -> None:
        """Acknowledge a job. Raises ConnectionLost if it was given back."""
        consumer = self._started()
        self._done.append(id)
        if not self._acknowledging:
            self._acknowledging = True
            self._in_loop(partial(self._acknowledge, consumer))

    def _acknowledge(self, consumer: Consumer) -> None:
        """Acknowledge finished jobs, in the loop."""
        self._acknowledging = False  # before reading the finished jobs
        done = []
        while self._done:
            done.append(self._done.popleft())
        if done:
            consumer.settle(HeldJob.ack, done)

    def give_back(self) -> None:
        """Give back unacknowledged jobs, and take no more."""
        consumer, self._consumer = self._consumer, None
        if consumer is None or os.getpid() != self._pid:
            return

        async def end(_: AsyncClient) -> None:
            self._acknowledge(consumer)
            consumer.retire()
            await consumer.ended.wait()

        try:
            self._disque.run(end)
        except DisqueError as error:
            _log.warning("tasks not given back", error=str(error))

    def _in_loop(self, function: Any) -> None:
        assert self._token is not None
        try:
            self._token.run_sync_soon(function)
        except trio.RunFinishedError:
            pass  # the client is closed, and has given everything back

    def close(self) -> None:
        if not self.closed and os.getpid() == self._pid:
            for queue in self._temporary - set(self._active_queues):
                self.queue_delete(queue)
            self.qos  # noqa: B018 - so that closing it gives jobs back
        super().close()


def _raise(error: DisqueError) -> None:
    raise error
