"""The transport: a kombu connection, with a client and the jobs that arrived for its channels."""

from typing import Any, Final

from amqp.exceptions import RecoverableConnectionError
from celery.exceptions import ImproperlyConfigured
from kombu.transport import virtual
from kombu.utils.compat import detect_environment

from disque_integrations.celery.channel import Channel
from disque_integrations.celery.inbox import Inbox
from disque_integrations.celery.options import CLIENTS, Access, TransportOptions, cluster_of
from disque_integrations.celery.scheduled import show_what_waits_in_nodes
from disque_integrations.express import Express
from disque_trio.client.sync import Client
from disque_trio.client.urls import Cluster
from disque_trio.respclient.errors import (
    AuthError,
    ConnectionLost,
    LoadingError,
    MaxLenError,
    MisconfError,
    NoReplError,
    NoUniqueError,
    OOMError,
    PausedError,
    ReplyError,
)
from disque_trio.version import VERSION

_AT_ONCE: Final = 100
"""The most deliveries before Celery's loop does other work."""


class Transport(virtual.Transport):
    """Transports Celery's tasks as jobs of a Disque cluster."""

    Channel = Channel

    default_port = 7711
    driver_type = "disque"
    driver_name = "disque-trio"
    polling_interval = None

    connection_errors = (*virtual.Transport.connection_errors, ConnectionLost, AuthError, OSError)
    recoverable_connection_errors = (RecoverableConnectionError, *connection_errors)
    channel_errors = (*virtual.Transport.channel_errors, ReplyError)
    recoverable_channel_errors = (
        OOMError,
        NoReplError,
        NoUniqueError,
        PausedError,
        MaxLenError,
        LoadingError,
        MisconfError,
    )

    implements = virtual.Transport.implements.extend(
        asynchronous=True, exchange_type=frozenset(["direct", "topic", "fanout"])
    )

    def __init__(self, client: Any, **kwargs: Any) -> None:
        if (patched := detect_environment()) != "default":
            raise ImproperlyConfigured(
                f"disque:// does not work under {patched}: use the pools prefork, threads or solo"
            )
        super().__init__(client, **kwargs)
        self.options = TransportOptions.of(client.transport_options)
        self._access: Access | None = None
        self._disque: Client | None = None
        self._express: Express | None = None
        self.inbox: Inbox | None = None
        self._loop: Any = None  # Celery's

    @property
    def disque(self) -> Client:
        """The client."""
        if self._disque is None:
            raise ConnectionLost("the connection is closed")
        return self._disque

    @property
    def cluster(self) -> Cluster:
        """The nodes."""
        if self._access is None:
            raise ConnectionLost("the connection is closed")
        return self._access.cluster

    @property
    def express(self) -> Express:
        """The short way to the client's node."""
        if self._express is None:
            raise ConnectionLost("the connection is closed")
        return self._express

    def lost(self) -> None:
        """Note that no node was reached in time."""
        if self._access is not None:
            CLIENTS.lost(self._access)

    def driver_version(self) -> str:
        return VERSION

    def establish_connection(self) -> "Transport":
        """Find a node. Raises ConnectionLost, AuthError, and ValueError for an invalid setting."""
        kombu = self.client
        urls = kombu.alt or [kombu.as_uri(include_password=True)]
        cluster = cluster_of(urls, kombu.ssl, self.options.client_name, self.options.hints)
        access = Access(cluster, self.options.retry_for, kombu.connect_timeout or 5.0)
        self._disque = CLIENTS.take(access)
        self._access = access
        login = access.cluster.login
        self._express = Express(lambda: self.disque, login, self.options.add_timeout)
        self.inbox = Inbox()
        show_what_waits_in_nodes()
        super().establish_connection()
        return self

    def close_connection(self, connection: Any) -> None:
        super().close_connection(connection)
        if self._loop is not None:
            self.unregister_from_event_loop(connection, self._loop)
        access, self._access = self._access, None
        self._disque = None
        express, self._express = self._express, None
        if express is not None:
            express.close()
        inbox, self.inbox = self.inbox, None
        if inbox is not None:
            inbox.close()
        if access is not None:
            CLIENTS.give_back(access)

    def verify_connection(self, connection: Any) -> bool:
        return self._disque is not None

    # ---- Celery's loop and kombu's --------------------------------------------------------------

    def drain_events(self, connection: Any, timeout: float | None = None) -> None:
        """Deliver a message. Raises TimeoutError if none arrives within ``timeout`` (s)."""
        if not self._deliver_one():
            if self.inbox is None:
                raise ConnectionLost("the connection is closed")
            self.inbox.wait(timeout)
            if not self._deliver_one():
                raise TimeoutError

    def register_with_event_loop(self, connection: Any, loop: Any) -> None:
        if self.inbox is not None:
            loop.add_reader(self.inbox.fd, self._deliver_some)
            self._loop = loop

    def unregister_from_event_loop(self, connection: Any, loop: Any) -> None:
        if self.inbox is not None:
            loop.remove_reader(self.inbox.fd)
        self._loop = None

    def _deliver_some(self) -> None:
        for _ in range(_AT_ONCE):
            if not self._deliver_one():
                break

    def _deliver_one(self) -> bool:
        """Deliver the first message that arrived; return False if there is none."""
        letter = None if self.inbox is None else self.inbox.take()
        if letter is None:
            return False
        letter()
        return True
