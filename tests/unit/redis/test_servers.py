"""Where a Redis is, and what its error replies mean."""

import socket

import pytest
import trio

from disque_trio.redis import Address, Options, Server
from disque_trio.redis.connection import RedisConnection
from disque_trio.redis.errors import RedisError, RedisUnavailable, redirection


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
