"""Adds the jobs of an outbox, using the client for threads."""

from collections.abc import Sequence
from functools import partial

from disque_trio.client.batch import NewJob, add_each
from disque_trio.client.sync import Client
from disque_trio.client.sync.client import connect_to
from disque_trio.client.urls import Cluster
from disque_trio.respclient.errors import DisqueError

COPIES_WITHIN = 5.0  # s that a node may take to copy a job
# s that a batch, and its transaction, waits for another node; the forwarder tries again anyway.
RETRY_FOR = 2.0


class DisqueSender:
    """A client of a cluster, connected when first needed; see ``Sender``.

    Args:
        cluster: some nodes, and how to log in.
        unique_for: seconds to keep the keys of jobs.

    Raises:
        ValueError: a certificate file cannot be used.
    """

    def __init__(self, cluster: Cluster, unique_for: float) -> None:
        self._cluster = cluster.named_after("disque-outbox")
        self._cluster.login.encryption()  # reads the files
        self.nodes = self._cluster.nodes
        self._unique_for = unique_for
        self._client: Client | None = None

    def send(self, jobs: Sequence[NewJob]) -> list[str | DisqueError]:
        add = partial(add_each, jobs=jobs, timeout=COPIES_WITHIN, unique_for=self._unique_for)
        try:
            return self._connected().run(add)
        except DisqueError as error:
            return [error] * len(jobs)

    def node(self) -> str:
        """Return the address of a node that answers.

        Raises:
            DisqueError: there is none.
        """
        client = self._connected()
        client.hello()
        return client.address or ""

    def reaches_a_node(self) -> bool:
        try:
            self.node()
        except DisqueError:
            return False
        return True

    def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            self._client.close()

    def _connected(self) -> Client:
        if self._client is None:
            self._client = connect_to(self._cluster, RETRY_FOR)
        return self._client
