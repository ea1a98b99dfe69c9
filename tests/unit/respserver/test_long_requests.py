"""Many long requests at once: a turn serves some of them, and all who say little."""

import socket
from collections.abc import Iterator

import pytest

from tests.unit.respserver.test_last_words import Service
from tools.bench.inprocess import request

PING = b"PING\r\n"


@pytest.fixture
def service() -> Iterator[Service]:
    it = Service()
    yield it
    it.close()


def is_answered(sock: socket.socket) -> bool:
    try:
        return sock.recv(1000) != b""
    except BlockingIOError:
        return False


def test_who_says_little_waits_for_one_turn_of_many_long_requests(service: Service) -> None:
    id = b"D-12345678-ABCDEFGHIJKLMNOPQRSTUVWX-05a1"
    crowd = [service.client() for _ in range(200)]
    small = service.client()
    for _ in range(10):  # its reads become small
        small.send(PING)
        service.settle()
        assert is_answered(small)
    for sock in crowd:
        sock.send(request(b"ACKJOB", *[id] * 1_000))
    small.send(PING)
    engine = service.engine
    assert engine.poll(1)
    first = sum(map(is_answered, crowd))
    left = len(service.engine.node.batches.waiting) + first
    assert left < 30
    if not is_answered(small):
        assert engine.poll(1)
        assert is_answered(small)
    service.settle()
    assert sum(map(is_answered, crowd)) + first == len(crowd)
    engine.turn([])
    assert not engine.is_behind
