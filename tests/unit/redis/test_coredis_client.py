"""A coredis client says where a Redis is."""

import ssl

import coredis
from coredis.connection import TCPLocation
from coredis.credentials import UserPassCredentialProvider

from disque_trio.redis import Address, Options, Sentinels, Server
from disque_trio.redis.coredis_client import like


def test_a_coredis_client_says_where_redis_is_and_how_to_log_in() -> None:
    tls = ssl.create_default_context()
    assert like(
        coredis.Redis(port=5, db=4, username="u", password="p", ssl_context=tls, connect_timeout=2)
    ) == Server((Address("localhost", 5),), Options(4, "u", "p", tls=tls, connect_seconds=2))
    assert like(coredis.Redis(unix_socket_path="/x/y", db=2)) == Server(
        (Address(path="/x/y"),), Options(2)
    )
    cluster = coredis.RedisCluster(startup_nodes=[TCPLocation("a", 3), TCPLocation("b", 4)])
    assert like(cluster) == Server((Address("a", 3), Address("b", 4)), Options())
    for stream in cluster.connection_pool.cluster_layout._error_stream:
        stream.close()  # coredis does not
    sentinel = coredis.Sentinel([TCPLocation("a", 1)], sentinel_kwargs={"password": "s"}, db=3)
    assert like(sentinel.primary_for("main")) == Sentinels(
        (Server((Address("a", 1),), Options(password="s")),), "main", Options(3)
    )


async def test_the_first_commands_of_a_coredis_client_are_kept() -> None:
    server = like(coredis.Redis(client_name="me", noevict=True, notouch=True))
    assert isinstance(server, Server)
    assert server.options.commands == (
        (b"CLIENT", b"SETNAME", "me"),
        (b"CLIENT", b"NO-EVICT", b"ON"),
        (b"CLIENT", b"NO-TOUCH", b"ON"),
    )
    server = like(coredis.Redis(credential_provider=UserPassCredentialProvider("u", "p")))
    assert isinstance(server, Server)
    assert server.options.credentials is not None
    assert await server.options.credentials() == ("u", "p")
