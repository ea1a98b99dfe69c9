"""Dramatiq's broker: queues, messages and delays, implemented with Disque."""

import math
import threading
import time
from collections.abc import Sequence
from typing import Any, Final, Unpack

from dramatiq.broker import Broker, Consumer
from dramatiq.common import xq_name
from dramatiq.errors import BrokerError, QueueJoinTimeout, QueueNotFound
from dramatiq.message import Message
from dramatiq.middleware import Middleware

from disque_integrations.dramatiq.connecting import URL, connected, raise_as_broker_error
from disque_integrations.dramatiq.consumer import DisqueConsumer
from disque_integrations.dramatiq.taken import TakenMessage
from disque_integrations.dramatiq.traces import Traces
from disque_integrations.express import ADD_TIMEOUT, Express, add_once
from disque_trio.client.sync import Client
from disque_trio.client.urls import Cluster
from disque_trio.job_options import JobOptions
from disque_trio.respclient.errors import DisqueError

DAY: Final = 86400
PRIORITIES: Final = range(8)
UNFINISHED: Final = ("wait-repl", "active", "queued")


class DisqueBroker(Broker):
    """A broker that keeps messages in a Disque cluster.

    Args:
        url: the nodes, as ``disque[s]://[[user]:password@]host[:port]``; several are separated by
            semicolons, or in a list.
        middleware: replaces Dramatiq's default middleware.
        namespace: a queue is called ``NAMESPACE.queue`` on the nodes.
        retry_for: how long to keep trying if there is no node, before raising ``ConnectionFailed``
            or ``ConnectionClosed``, in seconds.
        message_ttl: how long a message lives after its delay, in seconds.
        dead_message_ttl: how long a dead letter lives, in seconds, unless the queue has a policy.
        retry: the seconds after which a message goes to another worker at the latest, if nothing
            was heard of the worker that has it. A worker that dies loses its connection, and so its
            messages at once.
        replicate: how many nodes must have a message; None: the node's default.
        unique: whether a message is sent again with the same key if enqueuing it got no answer, so
            that it exists only once. Nodes of C Disque do not support that.
    """

    def __init__(
        self,
        *,
        url: str | Sequence[str] = URL,
        middleware: list[Middleware] | None = None,
        namespace: str = "dramatiq",
        retry_for: float = 5.0,
        message_ttl: int = 30 * DAY,
        dead_message_ttl: int = 7 * DAY,
        retry: int = 20,
        replicate: int | None = None,
        unique: bool = True,
    ) -> None:
        super().__init__(middleware=middleware)
        # First, so that what other middleware does when a message ends is in the message's trace.
        self.middleware.insert(0, Traces())
        self.queues: set[str] = set()
        self.namespace = namespace
        self.retry_for = retry_for
        self.message_ttl = message_ttl
        self.dead_message_ttl = dead_message_ttl
        self.retry = retry
        self.replicate = replicate
        self.unique = unique
        self._cluster = Cluster.parse(url)
        self._opening = threading.Lock()
        self._clients: dict[float, Client] = {}
        self._express = Express(lambda: self.client, self._cluster.login, ADD_TIMEOUT)

    @property
    def client(self) -> Client:
        """The client for commands, connected at first use.

        Raises:
            ConnectionFailed: no node could be reached, or the password was refused.
        """
        return self._connected(self.retry_for)

    def _connected(self, retry_for: float) -> Client:
        with self._opening:
            client = self._clients.get(retry_for)
            if client is None:
                client = connected(self._cluster, retry_for)
                self._clients[retry_for] = client
            return client

    def close(self) -> None:
        """Settle messages in hand, and disconnect."""
        self._express.close()
        with self._opening:
            clients, self._clients = self._clients, {}
        for client in clients.values():
            client.close()

    def name(self, queue_name: str) -> str:
        """Return the name of a queue on the nodes."""
        return f"{self.namespace}.{queue_name}" if self.namespace else queue_name

    # ---- queues ------------------------------------------------------------------------------

    def declare_queue(self, queue_name: str) -> None:
        if queue_name not in self.queues:
            self.emit_before("declare_queue", queue_name)
            self.queues.add(queue_name)
            self.emit_after("declare_queue", queue_name)

    def get_declared_queues(self) -> set[str]:
        return self.queues.copy()

    def enqueue(self, message: Message[Any], *, delay: int | None = None) -> Message[Any]:
        """Add a message.

        Args:
            delay: milliseconds until the message is queued.

        Raises:
            ConnectionFailed, ConnectionClosed: no node could be reached in time.
            BrokerError: the nodes refused the message, because they are full, for example.
            ValueError: ``broker_priority`` is not from 0 to 7.
        """
        priority = message.options.get("broker_priority")
        if priority is not None and priority not in PRIORITIES:
            raise ValueError(f"broker_priority must be {PRIORITIES[0]} to {PRIORITIES[-1]}")
        self.emit_before("enqueue", message, delay)
        wait = max(delay or 0, 0) / 1000
        try:
            self._add(
                self.name(message.queue_name),
                message.encode(),
                delay=wait or None,
                ttl=self.message_ttl + math.ceil(wait),
                retry=self.retry,
                replicate=self.replicate,
                priority=priority,
            )
        except (DisqueError, BrokerError) as error:
            if isinstance(message, TakenMessage):
                message.unsent = wait  # Dramatiq would drop the message: this was its retry
            raise_as_broker_error(error)
        self.emit_after("enqueue", message, delay)
        return message

    def _add(self, name: str, body: bytes, **options: Unpack[JobOptions]) -> None:
        if self.unique:
            add_once(self._express, self.client, self.retry_for, name, body, **options)
        else:
            self.client.add(name, body, **options)

    def consume(self, queue_name: str, prefetch: int = 1, timeout: int = 5000) -> Consumer:
        """Return a consumer of a declared queue.

        Raises:
            QueueNotFound: the queue was not declared.
            ConnectionFailed, ConnectionClosed: no node could be reached in time.
        """
        if queue_name not in self.queues:
            raise QueueNotFound(queue_name)
        name, dead = self.name(queue_name), self.name(xq_name(queue_name))
        try:
            if self.client.policy(name) is None:
                self.client.set_policy(name, dead=dead, dead_ttl=self.dead_message_ttl)
        except DisqueError as error:
            raise_as_broker_error(error)
        # Messages in hand must not be given up as long as their worker lives.
        client = self._connected(math.inf)
        return DisqueConsumer(client, name, dead, prefetch, timeout, self.dead_message_ttl)

    def flush(self, queue_name: str) -> None:
        """Cancel all messages of a queue: those queued on all nodes, and those that are delayed or
        with a worker on the node in use."""
        name = self.name(queue_name)
        try:
            self.client.purge(name)
            ids = list(self.client.jscan(queue=name, states=UNFINISHED))
            for start in range(0, len(ids), 100):
                self.client.cancel(*ids[start : start + 100])
        except DisqueError as error:
            raise_as_broker_error(error)

    def flush_all(self) -> None:
        """Cancel all messages of all declared queues."""
        for queue_name in self.queues:
            self.flush(queue_name)

    def join(self, queue_name: str, *, interval: int = 100, timeout: int | None = None) -> None:
        """Wait until the node in use has no message of the queue that is queued, delayed or with a
        worker. For tests.

        Args:
            interval: milliseconds between two checks.
            timeout: milliseconds to wait; None: forever.

        Raises:
            QueueJoinTimeout: the time is over.
        """
        deadline = math.inf if timeout is None else time.monotonic() + timeout / 1000
        while self._unfinished(queue_name):
            if time.monotonic() >= deadline:
                raise QueueJoinTimeout(queue_name)
            time.sleep(interval / 1000)

    def _unfinished(self, queue_name: str) -> bool:
        try:
            # QSTAT would not count a message whose delay has just ended.
            found = self.client.jscan(queue=self.name(queue_name), states=UNFINISHED)
            return next(iter(found), None) is not None
        except DisqueError as error:
            raise_as_broker_error(error)
