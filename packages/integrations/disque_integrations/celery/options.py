"""The options in ``broker_transport_options``, and the clients of a process."""

import os
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from ssl import CERT_NONE, SSLContext
from typing import Any, Final, Self

import trio

from disque_trio.client import Client as AsyncClient
from disque_trio.client import ConnectionLost
from disque_trio.client.requests import kept_for
from disque_trio.client.sync import Client
from disque_trio.client.sync.client import connect_to
from disque_trio.client.urls import Cluster
from disque_trio.respclient.tls import Tls

DAY: Final = 86_400
_HOPELESS: Final = 5.0
"""Seconds for which attempts to find a node are brief, once a long one has failed."""
_BRIEF: Final = 0.5  # s
_SSL: Final = {
    "ca_certs": "ca_file",
    "ca_path": "ca_dir",
    "certfile": "cert_file",
    "keyfile": "key_file",
    "server_name": "server_name",
    "server_hostname": "server_name",
    "check_hostname": "check_hostname",
    "cert_reqs": "verify",
}
"""Options in ``broker_use_ssl``, as for AMQP or, with the prefix ``ssl_``, as for Redis."""


@dataclass(frozen=True, slots=True)
class TransportOptions:
    """Options of the transport and of the backend; docs/celery.md explains them. Times are in
    seconds.

    Attributes:
        retry: how long after the last sign of life of its worker a task goes to another one.
        ttl: a task's time to live, counted from its ``eta``.
        replicate: how many nodes have each task; None: the node's default.
        unique: whether a task is sent again, without doubling it, if sending it got no answer.
        add_timeout: the time for making copies.
        retry_for: how long to keep looking for a node.
        queue_prefix: the prefix of names of queues and exchanges on the server.
        transient_ttl: the time to live of an event, or of a command to workers.
        client_name: the name of connections in CLIENT LIST; None: that in a URL, or no name.
        hints: whether to go to the nodes that are best for queues.
    """

    retry: int = 30
    ttl: int = 7 * DAY
    replicate: int | None = None
    unique: bool = True
    add_timeout: float = 5.0
    retry_for: float = 5.0
    queue_prefix: str = ""
    transient_ttl: int = 60
    client_name: str | None = None
    hints: bool = True

    @property
    def kept(self) -> float:
        """Seconds to keep the key of a task, so that it can be sent again."""
        return kept_for(self.retry_for + self.add_timeout)

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """Pick the options out of ``given``."""
        return cls(
            **{field.name: given[field.name] for field in fields(cls) if field.name in given}
        )


@dataclass(frozen=True, slots=True)
class Access:
    """What a client needs to know. Connections and backends of a process for which this is equal
    share a client."""

    cluster: Cluster
    retry_for: float
    connect_timeout: float


class Clients:
    """The clients of this process, with the number of users of each."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._clients: dict[Access, tuple[Client, int]] = {}
        self._hopeless: dict[Access, float] = {}  # until when
        os.register_at_fork(after_in_child=self._forked)

    def _forked(self) -> None:
        """Start over in a forked child."""
        self._lock = threading.Lock()
        self._clients = {}

    def take(self, access: Access) -> Client:
        """Return a client that reaches a node now.

        Raises:
            ConnectionLost, AuthError: no node can be reached, or the login was refused.
        """
        with self._lock:
            client, users = self._clients.get(access, (None, 0))
            first = _BRIEF if time.monotonic() < self._hopeless.get(access, 0.0) else None
            try:
                if client is None:
                    client = connect_to(
                        access.cluster, access.retry_for, access.connect_timeout, first
                    )
                else:
                    client.run(partial(_ping, seconds=first))
            except ConnectionLost:
                self.lost(access)
                raise
            self._clients[access] = client, users + 1
            return client

    def lost(self, access: Access) -> None:
        """Note that no node was reached for as long as ``access`` says. Celery and kombu soon try
        again, several times; these attempts are to be brief."""
        self._hopeless[access] = time.monotonic() + _HOPELESS

    def give_back(self, access: Access) -> None:
        """Note that there is one user fewer; the last one closes the client."""
        with self._lock:
            client, users = self._clients.get(access, (None, 0))
            if client is None:
                return  # it belongs to the parent process
            if users > 1:
                self._clients[access] = client, users - 1
                return
            del self._clients[access]
        client.close()


async def _ping(client: AsyncClient, seconds: float | None) -> None:
    """Check that a node answers within this time; None: as long as the client tries."""
    with trio.move_on_after(float("inf") if seconds is None else seconds):
        await client.execute("PING")
        return
    raise ConnectionLost("no node answers")


CLIENTS: Final = Clients()


def cluster_of(
    urls: Iterable[str], ssl: Any = None, client_name: str | None = None, hints: bool = True
) -> Cluster:
    """Return the cluster with these URLs, where one password applies to all.

    Args:
        ssl: the value of Celery's ``broker_use_ssl``, or what kombu took out of a URL.
        client_name, hints: see ``TransportOptions``.

    Raises:
        ValueError: there is no URL, one is malformed, or ``ssl`` is invalid.
    """
    found = Cluster.parse([url if url.partition("://")[2] else f"{url}localhost" for url in urls])
    found = replace(
        found, client_name=client_name or found.client_name, hints=found.hints and hints
    )
    return replace(found, tls=_tls(ssl)) if ssl else found


def _tls(ssl: Any) -> Tls | SSLContext:
    if ssl is True:
        return Tls()
    if isinstance(ssl, Tls | SSLContext):
        return ssl
    if not isinstance(ssl, Mapping):
        raise ValueError("broker_use_ssl must be True or a dictionary")
    values: dict[str, Any] = {}
    for name, value in ssl.items():
        short = name.removeprefix("ssl_")
        if short not in _SSL:
            raise ValueError(f"broker_use_ssl: {name!r} is unknown; known: {', '.join(_SSL)}")
        # kombu turns the value in a URL into a constant of the module ssl.
        checked = short != "cert_reqs" or value not in (CERT_NONE, None, "none", "CERT_NONE")
        values[_SSL[short]] = checked if short == "cert_reqs" else value
    return Tls(**values)
