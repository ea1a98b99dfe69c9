"""Dramatiq's result backend."""

import threading
from collections.abc import Sequence
from typing import Any

from dramatiq.encoder import Encoder
from dramatiq.message import Message
from dramatiq.results import ResultBackend, ResultMissing, ResultTimeout
from dramatiq.results.backend import DEFAULT_TIMEOUT

from disque_integrations.dramatiq.connecting import URL, connected, raise_as_broker_error
from disque_trio.client import kept
from disque_trio.client.client import Client as AsyncClient
from disque_trio.client.sync import Client
from disque_trio.client.urls import Cluster
from disque_trio.respclient.errors import DisqueError


class DisqueBackend(ResultBackend):
    """Keeps results in the cluster, each as a job; see ``disque_trio.client.kept``.

    Args:
        url: see ``DisqueBroker``.
        namespace, encoder, use_namespace_prefix_keys: as for Dramatiq's backends.
        retry_for: how long to keep trying if there is no node, in seconds.
        replicate: how many nodes must have a result; None: the node's default.
    """

    def __init__(
        self,
        *,
        url: str | Sequence[str] = URL,
        namespace: str = "dramatiq-results",
        encoder: Encoder | None = None,
        use_namespace_prefix_keys: bool = False,
        retry_for: float = 30.0,
        replicate: int | None = None,
    ) -> None:
        super().__init__(
            namespace=namespace,
            encoder=encoder,
            use_namespace_prefix_keys=use_namespace_prefix_keys,
        )
        self._cluster = Cluster.parse(url)
        self._retry_for = retry_for
        self._replicate = replicate
        self._opening = threading.Lock()
        self._client: Client | None = None

    def close(self) -> None:
        """Disconnect. The next use connects again."""
        with self._opening:
            if self._client is not None:
                self._client.close()
                self._client = None

    def get_result(
        self, message: Message[Any], *, block: bool = False, timeout: int | None = None
    ) -> Any:
        """Return the result of a message.

        Args:
            block: whether to wait for the result.
            timeout: how long to wait at most, in milliseconds; None: 10 seconds.

        Raises:
            ResultMissing: there is no result, and ``block`` is not set.
            ResultTimeout: the result did not arrive in time.
            ConnectionFailed, ConnectionClosed: no node could be reached in time.
        """
        wait = 0.0
        if block:
            wait = (DEFAULT_TIMEOUT if timeout is None else timeout) / 1000
        name = self._name(self.build_message_key(message))
        try:
            data = self._connected().run(lambda client: kept.read(client, name, wait))
        except DisqueError as error:
            raise_as_broker_error(error)
        if data is None:
            raise ResultTimeout(message) if block else ResultMissing(message)
        return self.unwrap_result(self.encoder.decode(data))  # type: ignore[no-untyped-call]

    def _store(self, message_key: str, result: Any, ttl: int) -> None:
        name, data = self._name(message_key), self.encoder.encode(result)

        async def keep(client: AsyncClient) -> None:
            await kept.keep(client, name, data, ttl / 1000, self._replicate)

        try:
            self._connected().run(keep)
        except DisqueError as error:
            raise_as_broker_error(error)

    def _name(self, message_key: str) -> str:
        key = message_key.removeprefix(f"{self.namespace}:")
        return f"{self.namespace}.{key}"

    def _connected(self) -> Client:
        with self._opening:
            if self._client is None:
                self._client = connected(self._cluster, self._retry_for)
            return self._client
