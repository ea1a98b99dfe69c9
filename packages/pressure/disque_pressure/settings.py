"""Finds the Redis and the key prefix: from arguments, else the environment, else the defaults."""

import os
from dataclasses import dataclass

from disque_trio.notation.addresses import Address
from disque_trio.redis.coredis_client import CoredisClient, like
from disque_trio.redis.servers import Options, Sentinels, Server

Client = Server | Sentinels | CoredisClient
"""What says where a Redis is, and how to connect."""

DEFAULT_SERVER = "127.0.0.1"
DEFAULT_PORT = 6379
DEFAULT_DB = 0
DEFAULT_PREFIX = "__pressure__"


@dataclass(frozen=True, slots=True)
class Settings:
    """A Redis (host name or address, TCP port, database number) and a key prefix."""

    server: str
    port: int
    db: int
    prefix: str


def resolve(
    server: str | None = None,
    port: int | None = None,
    db: int | None = None,
    prefix: str | None = None,
) -> Settings:
    """Return the settings. None means the environment variable (REDIS_SERVER, REDIS_PORT, REDIS_DB,
    PRESSURE_PREFIX), or else the default.

    Raises:
        ValueError: REDIS_PORT or REDIS_DB is not a number, or too large.
    """
    return Settings(
        server=server if server is not None else os.environ.get("REDIS_SERVER") or DEFAULT_SERVER,
        port=port if port is not None else _number("REDIS_PORT", DEFAULT_PORT, 65535),
        db=db if db is not None else _number("REDIS_DB", DEFAULT_DB, 1 << 31),
        prefix=prefix if prefix is not None else os.environ.get("PRESSURE_PREFIX", DEFAULT_PREFIX),
    )


def _number(variable: str, default: int, most: int) -> int:
    text = os.environ.get(variable)
    if not text:
        return default
    if not text.isascii() or not text.isdigit() or int(text) > most:
        raise ValueError(f"{variable}={text!r} is not a number from 0 to {most}")
    return int(text)


def servers(settings: Settings, client: Client | None) -> Server | Sentinels:
    """Return what to connect to: ``client``, or else the Redis of the settings."""
    if client is None:
        return Server((Address(settings.server, settings.port),), Options(settings.db))
    return client if isinstance(client, Server | Sentinels) else like(client)
