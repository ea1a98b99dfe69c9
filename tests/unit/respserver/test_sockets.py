"""The C and the Python socket functions of the engine behave alike."""

import fcntl
import os
import select
import socket
from collections.abc import Callable
from contextlib import suppress

import pytest

from disque_trio.resp.command import encode_command
from disque_trio.resp.limits import MAX_BULK
from disque_trio.respserver.io import sockets

Requests = list[list[bytes]]

# Both are the same functions unless the package is compiled.
RECEIVES = list({sockets.receive_uncompiled: None, sockets.receive: None})
SENDS = list({os.write: None, sockets.send: None})
in_c = pytest.mark.skipif(sockets.send is os.write, reason="the package is not compiled")


@pytest.mark.parametrize("receive", RECEIVES)
def test_requests_are_received_until_the_client_ends(
    receive: Callable[[int, int, int, Requests], tuple[int, bytes]],
) -> None:
    ours, theirs = socket.socketpair()
    ping = encode_command([b"PING"])
    with ours, theirs:
        ours.setblocking(False)
        requests: Requests = []
        with pytest.raises(BlockingIOError):
            receive(ours.fileno(), 1000, MAX_BULK, requests)
        theirs.sendall(ping * 3)
        assert receive(ours.fileno(), 2 * len(ping), MAX_BULK, requests) == (2 * len(ping), b"")
        assert receive(ours.fileno(), 1000, MAX_BULK, requests) == (len(ping), b"")
        assert requests == [[b"PING"]] * 3
        theirs.sendall(b"PING\r\n")
        assert receive(ours.fileno(), 1000, MAX_BULK, requests) == (6, b"PING\r\n")
        theirs.sendall(encode_command([b"ECHO", b"abc"]))
        assert receive(ours.fileno(), 1000, 2, requests)[1] != b""
        theirs.close()
        assert receive(ours.fileno(), 1000, MAX_BULK, requests) == (0, b"")
        assert requests == [[b"PING"]] * 3
    with pytest.raises(OSError, match="descriptor"):
        receive(-1, 1000, MAX_BULK, requests)


@pytest.mark.parametrize("send", SENDS)
def test_a_socket_takes_what_it_has_room_for(send: Callable[[int, bytes], int]) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        assert send(ours.fileno(), b"+PONG\r\n") == 7
        large = b"x" * 10_000_000
        sent = send(ours.fileno(), large)
        assert 0 < sent < len(large)
        with suppress(BlockingIOError):
            while True:
                sent += send(ours.fileno(), b"x" * 1000)
        ours.close()
        with theirs.makefile("rb") as found:
            assert found.read() == b"+PONG\r\n" + b"x" * sent
    with pytest.raises(OSError, match="descriptor"):
        send(-1, b"")


@pytest.mark.parametrize("least", [0, 2000])
def test_events_are_those_of_epoll(least: int) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, select.epoll() as epoll:
        poll = sockets.poller(epoll)
        fd = fcntl.fcntl(ours.fileno(), fcntl.F_DUPFD_CLOEXEC, least)
        try:
            epoll.register(fd, select.EPOLLIN)
            assert poll(0.0, 10) == epoll.poll(0.0, 10) == []
            assert poll(0.0001, 10) == []
            theirs.sendall(b"a")
            assert poll(5.0, 10) == poll(5.0, 10) == epoll.poll(5.0, 10) == [(fd, select.EPOLLIN)]
            epoll.modify(fd, select.EPOLLOUT | select.EPOLLIN)
            epoll.register(theirs.fileno(), select.EPOLLOUT)
            assert sorted(poll(5.0, 10)) == sorted(epoll.poll(5.0, 10))
            assert len(poll(5.0, 1)) == 1
        finally:
            os.close(fd)


@in_c
def test_polling_for_ever_is_refused() -> None:
    with select.epoll() as epoll:
        poll = sockets.poller(epoll)
        with pytest.raises(ValueError, match="time-out"):
            poll(-1.0, 1)
        with pytest.raises(ValueError, match="room"):
            poll(0.0, 0)


@in_c
def test_receiving_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="room"):
        sockets.receive(0, 0, MAX_BULK, [])
