"""Connects for Dramatiq, and converts errors to Dramatiq's."""

from typing import Final, NoReturn

from dramatiq.errors import BrokerError, ConnectionClosed, ConnectionFailed

from disque_trio.client.sync import Client
from disque_trio.client.sync.client import connect_to
from disque_trio.client.urls import Cluster
from disque_trio.respclient.errors import AuthError, ConnectionLost, DisqueError, TlsError

URL: Final = "disque://127.0.0.1:7711"


def connected(cluster: Cluster, retry_for: float) -> Client:
    """Connect. Raises ConnectionFailed, and ValueError if a certificate file is unusable."""
    try:
        return connect_to(cluster, retry_for)
    except DisqueError as error:
        raise ConnectionFailed(error) from error


def raise_as_broker_error(error: DisqueError | BrokerError) -> NoReturn:
    """Raise the exception of Dramatiq that corresponds to ``error``."""
    if isinstance(error, BrokerError):
        raise error
    if isinstance(error, AuthError | TlsError):
        raise ConnectionFailed(error) from error
    if isinstance(error, ConnectionLost):
        raise ConnectionClosed(error) from error
    raise BrokerError(error) from error
