"""A blocking connection to a server that says what the test wants."""

import socket
from pathlib import Path

import hiredis
import pytest

from disque_trio.notation.addresses import Address
from disque_trio.respclient.blocking import BlockingConnection
from disque_trio.respclient.login import Login
from tests.support.scripted_node import ScriptedNode


def test_replies_that_arrive_together_are_read_together() -> None:
    with ScriptedNode(lambda request: b"+one\r\n:2\r\n-ERR three\r\n+fi") as node:
        connection = _open(node)
        connection.send("PING")
        *replies, error = connection.read_all()
        connection.close()
    assert replies == [b"one", 2]
    assert isinstance(error, hiredis.ReplyError)


def test_what_is_not_resp_is_an_os_error() -> None:
    with ScriptedNode(lambda request: b"HTTP/1.1 400 Bad Request\r\n") as node:
        connection = _open(node)
        with pytest.raises(OSError, match="Protocol error"):
            connection.execute("PING")
        connection.close()


def test_the_end_of_the_connection_is_an_os_error() -> None:
    with ScriptedNode(lambda request: None) as node:
        connection = _open(node)
        with pytest.raises(ConnectionResetError):
            connection.execute("PING")
        connection.close()


def test_a_refused_password_is_returned_and_a_refused_name_is_not() -> None:
    def answer(request: list[bytes]) -> bytes:
        return b"+OK\r\n" if request == [b"AUTH", b"right"] else b"-ERR no\r\n"

    with ScriptedNode(answer) as node:
        connection = _open(node)
        refused = connection.log_in(Login(password="wrong", client_name="me"))
        assert str(refused) == "ERR no"
        assert connection.log_in(Login(password="right", client_name="me")) is None
        connection.close()
    assert node.requests == [
        [b"AUTH", b"wrong"],
        [b"AUTH", b"right"],
        [b"CLIENT", b"SETNAME", b"me"],
    ]


def test_a_unix_socket_is_connected_to(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        connection = BlockingConnection.open(Address(path=str(path)), None, 5.0)
        there, _ = listening.accept()
        there.sendall(b"+PONG\r\n")
        assert connection.execute("PING") == b"PONG"
        connection.close()
        there.close()
    with pytest.raises(OSError, match="No such file"):
        BlockingConnection.open(Address(path=str(tmp_path / "none")), None, 5.0)


def _open(node: ScriptedNode) -> BlockingConnection:
    host, _, port = node.address.rpartition(":")
    return BlockingConnection.open(Address(host, int(port)), None, 5.0)
