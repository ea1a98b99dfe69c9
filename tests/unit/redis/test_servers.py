"""Where a Redis is, and what its error replies mean."""

import socket
import ssl

import coredis
import pytest
import trio
from coredis.connection import TCPLocation
from coredis.credentials import UserPassCredentialProvider

from disque_trio.redis import Address, Options, Sentinels, Server
from disque_trio.redis.connection import RedisConnection
from disque_trio.redis.coredis_client import like
from disque_trio.redis.errors import RedisError, RedisUnavailable, redirection


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


def test_a_password_is_not_printed() -> None:
    assert "secret" not in repr(Server((Address("h", 1),), Options(password="secret")))


@pytest.mark.parametrize(
    ("text", "code", "told"),
    [
        ("ERR unknown command", "ERR", "unknown command"),
        ("WRONGTYPE Operation", "WRONGTYPE", "Operation"),
        ("OOM command not allowed", "OOM", "OOM command not allowed"),
        ("Odd", "Odd", "Odd"),
    ],
)
def test_an_error_reply_has_a_code_and_a_text(text: str, code: str, told: str) -> None:
    error = RedisError(text)
    assert (error.code, error.text, str(error)) == (code, text, told)


def test_a_redirection_names_a_node_or_only_its_port() -> None:
    asked = Address("here", 1)
    assert redirection(RedisError("MOVED 7 there:2"), asked) == Address("there", 2)
    assert redirection(RedisError("ASK 7 ::1:2"), asked) == Address("::1", 2)
    assert redirection(RedisError("MOVED 7 :2"), asked) == Address("here", 2)


async def test_any_network_error_is_a_lost_connection() -> None:
    async def credentials() -> tuple[str, str]:
        raise KeyError("no such secret")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        async with trio.open_nursery() as nursery:
            for server in (
                Server((Address("x" * 100, 1),), Options()),
                Server((Address("127.0.0.1", port),), Options(credentials=credentials)),
                Server((Address(path="/no/such/socket"),), Options()),
                Server((), Options()),
            ):
                with pytest.raises(RedisUnavailable) as lost:
                    await RedisConnection(nursery, server.connect).command(b"PING")
                assert lost.value.kind == "down"
                assert not lost.value.maybe_executed
            nursery.cancel_scope.cancel()


async def test_the_first_reachable_server_is_used() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        there = Address("127.0.0.1", listener.getsockname()[1])

        def serve() -> None:
            with listener.accept()[0] as peer:
                assert peer.recv(1000).startswith(b"*2\r\n$5\r\nHELLO\r\n$1\r\n3\r\n")
                peer.sendall(b"%0\r\n")

        server = Server((Address("127.0.0.1", 1), there), Options())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.to_thread.run_sync, serve)
            connection = await server.connect(nursery, None, 5)
            assert connection.address == there
            nursery.cancel_scope.cancel()
