"""What ``broker_transport_options`` may say, and the clients of a process."""

import os
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from ssl import CERT_NONE, SSLContext
from typing import Any, Final, Self

from disque_trio.client.requests import kept_for
from disque_trio.client.sync import Client
from disque_trio.client.sync.client import connect_to
from disque_trio.client.urls import Cluster
from disque_trio.respclient.tls import Tls

DAY: Final = 86_400
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
"""What ``broker_use_ssl`` may say, as for AMQP or, with ``ssl_`` in front, for Redis."""


@dataclass(frozen=True, slots=True)
class Options:
    """Options of the transport, and those of the backend; docs/celery.md explains them. Times are
    in seconds.

    Attributes:
        retry: a task is given to another worker if its own was not heard of for so long.
        ttl: life of a task, counted from its ``eta``.
        replicate: nodes that have each task; None: as the node says.
        unique: a task whose sending was not answered is sent again without doubling it.
        add_timeout: for the copies to be made.
        retry_for: how long a node is looked for when there is none.
        queue_prefix: stands before the names of queues and exchanges on the server.
        transient_ttl: life of an event, or of a command to workers.
    """

    retry: int = 30
    ttl: int = 7 * DAY
    replicate: int | None = None
    unique: bool = True
    add_timeout: float = 5.0
    retry_for: float = 5.0
    queue_prefix: str = ""
    transient_ttl: int = 60

    @property
    def kept(self) -> float:
        """Seconds for which the key of a task is kept, so that it can be sent again."""
        return kept_for(self.retry_for + self.add_timeout)

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """Those that are among ``given``."""
        return cls(
            **{field.name: given[field.name] for field in fields(cls) if field.name in given}
        )


@dataclass(frozen=True, slots=True)
class Access:
    """What a client needs to know: connections and backends of a process that know the same share
    one."""

    cluster: Cluster
    retry_for: float
    connect_timeout: float


class Clients:
    """The clients of this process, each with how many use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._clients: dict[Access, tuple[Client, int]] = {}
        os.register_at_fork(after_in_child=self._forked)

    def _forked(self) -> None:
        """Begin anew, in a child."""
        self._lock = threading.Lock()
        self._clients = {}

    def take(self, access: Access) -> Client:
        """A client that reaches a node now.

        Raises:
            ConnectionLost, AuthError: there is none that can be reached, or that lets us in.
        """
        with self._lock:
            client, users = self._clients.get(access, (None, 0))
            if client is None:
                client = connect_to(access.cluster, access.retry_for, access.connect_timeout)
            else:
                client.execute("PING")
            self._clients[access] = client, users + 1
            return client

    def give_back(self, access: Access) -> None:
        """One user less; the last one closes the client."""
        with self._lock:
            client, users = self._clients.get(access, (None, 0))
            if client is None:
                return  # it is the parent's
            if users > 1:
                self._clients[access] = client, users - 1
                return
            del self._clients[access]
        client.close()


CLIENTS: Final = Clients()


def cluster_of(urls: Iterable[str], ssl: Any = None) -> Cluster:
    """The cluster behind URLs, of which the password of one is that of all.

    Args:
        ssl: what Celery has in ``broker_use_ssl``, or kombu has taken out of a URL.

    Raises:
        ValueError: there is none, or one cannot be read; ``ssl`` cannot be understood.
    """
    found = Cluster.parse([url if url.partition("://")[2] else f"{url}localhost" for url in urls])
    return replace(found, tls=_tls(ssl)) if ssl else found


def _tls(ssl: Any) -> Tls | SSLContext:
    if ssl is True:
        return Tls()
    if isinstance(ssl, Tls | SSLContext):
        return ssl
    if not isinstance(ssl, Mapping):
        raise ValueError("broker_use_ssl is True, or a dictionary")
    values: dict[str, Any] = {}
    for name, value in ssl.items():
        short = name.removeprefix("ssl_")
        if short not in _SSL:
            raise ValueError(f"broker_use_ssl: {name!r} is unknown; there are {', '.join(_SSL)}")
        # kombu makes one of the modes of the module ssl of what a URL says.
        checked = short != "cert_reqs" or value not in (CERT_NONE, None, "none", "CERT_NONE")
        values[_SSL[short]] = checked if short == "cert_reqs" else value
    return Tls(**values)
