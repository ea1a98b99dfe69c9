"""Connects in the same way as an existing coredis client."""

from collections.abc import Mapping
from typing import Any, Protocol

from disque_trio.notation.addresses import Address
from disque_trio.redis.servers import CONNECT_SECONDS, Credentials, Options, Sentinels, Server
from disque_trio.resp.command import Argument


class CoredisClient(Protocol):
    """A coredis client: ``Redis``, one from a ``Sentinel``, or a ``RedisCluster``."""

    @property
    def connection_pool(self) -> Any: ...


def like(client: CoredisClient) -> Server | Sentinels:
    """Return the servers that the client talks to, with its options.

    The client need not be entered as a context. Of its options, only those are used that concern
    login and the first commands: user, password, database, connection name, TLS, connection
    timeout, NO-EVICT, NO-TOUCH, READONLY.
    """
    pool = client.connection_pool
    options = _options(pool.connection_kwargs)
    sentinels = getattr(pool, "sentinel_manager", None)
    if sentinels is not None:
        known = tuple(_server(sentinel.connection_pool) for sentinel in sentinels.sentinels)
        return Sentinels(known, str(pool.service_name), options)
    return _server(pool)


def _server(pool: Any) -> Server:
    locations = getattr(pool, "startup_nodes", None) or [pool.location]
    return Server(tuple(map(_address, locations)), _options(pool.connection_kwargs))


def _address(location: Any) -> Address:
    path = getattr(location, "path", "")
    return Address(path=path) if path else Address(location.host, location.port)


def _options(known: Mapping[str, Any]) -> Options:
    commands: list[tuple[Argument, ...]] = []
    if known.get("client_name") is not None:
        commands.append((b"CLIENT", b"SETNAME", known["client_name"]))
    for option, command in (
        ("noevict", (b"CLIENT", b"NO-EVICT", b"ON")),
        ("notouch", (b"CLIENT", b"NO-TOUCH", b"ON")),
        ("read_from_replicas", (b"READONLY",)),
    ):
        if known.get(option):
            commands.append(command)
    return Options(
        db=known.get("db") or 0,
        username=known.get("username"),
        password=known.get("password"),
        credentials=_credentials(known.get("credential_provider")),
        tls=known.get("ssl_context"),
        connect_seconds=known.get("connect_timeout") or CONNECT_SECONDS,
        commands=tuple(commands),
    )


def _credentials(provider: Any) -> Credentials | None:
    if provider is None:
        return None

    async def credentials() -> tuple[str, str]:
        found = await provider.get_credentials()
        return found.username, found.password or ""

    return credentials
