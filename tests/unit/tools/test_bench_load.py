"""The load generator, against the other end of a socket pair."""

import gc
import socket
import threading
from collections.abc import Iterator

import pytest

from tools.bench import load
from tools.bench.dialects import ConstantReply
from tools.bench.load import Exchange, LoadError, percentile, run
from tools.bench.scripts import send

Pair = tuple[socket.socket, socket.socket]
OK = ConstantReply(b"+OK\r\n")


@pytest.fixture(autouse=True)
def no_collection(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run collects the garbage of this process first, which takes half a second for all that is
    left of other tests."""
    monkeypatch.setattr(gc, "collect", lambda: 0)


@pytest.fixture
def pair() -> Iterator[Pair]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        theirs.settimeout(10)
        yield ours, theirs


class SlowReply(ConstantReply):
    """Lets the peer send the rest of a reply only once its beginning has arrived."""

    def __init__(self, text: bytes, peer: socket.socket, rest: bytes) -> None:
        super().__init__(text)
        self.peer = peer
        self.rest = rest

    def complete(self, reply: bytes, count: int) -> bool:
        if super().complete(reply, count):
            return True
        self.peer.sendall(self.rest)
        return False


@pytest.mark.parametrize(
    ("fraction", "expected"), [(0.0, 1), (0.5, 50), (0.99, 99), (0.999, 100), (1.0, 100)]
)
def test_a_percentile_is_the_nearest_rank(fraction: float, expected: float) -> None:
    assert percentile(list(range(1, 101)), fraction) == expected


def test_a_single_latency_is_every_percentile() -> None:
    assert [percentile([7.0], fraction) for fraction in (0.0, 0.5, 0.999)] == [7.0] * 3


def test_nothing_has_no_percentile() -> None:
    with pytest.raises(ValueError, match="empty"):
        percentile([], 0.5)


def test_every_answered_command_is_counted_and_every_batch_timed(pair: Pair) -> None:
    ours, theirs = pair
    theirs.sendall(b"+OK\r\n" * 3)
    result = run([ours], [send([Exchange(b"abc", OK, 3)])])
    assert result.commands == 3
    assert len(result.latencies) == 1
    assert 0 < result.latencies[0] <= result.seconds
    assert theirs.recv(100) == b"abc"


def test_a_reply_that_arrives_in_parts_is_put_together(pair: Pair) -> None:
    ours, theirs = pair
    theirs.sendall(b"+OK\r\n+O")
    shape = SlowReply(b"+OK\r\n", theirs, b"K\r\n")
    assert run([ours], [send([Exchange(b"abc", shape, 2)])]).commands == 2


def test_connections_share_the_batches_of_one_iterator() -> None:
    batches = iter([Exchange(b"%d" % number, OK, 1) for number in range(6)])
    pairs = [socket.socketpair() for _ in range(3)]
    try:
        for ours, theirs in pairs:
            ours.setblocking(False)
            # One reply at a time, or the next one would count as a surplus.
            threading.Thread(target=_echo_ok, args=(theirs,), daemon=True).start()
        result = run([ours for ours, _ in pairs], [send(batches) for _ in pairs])
    finally:
        for ours, theirs in pairs:
            ours.close()
            theirs.close()
    assert result.commands == 6


def _echo_ok(sock: socket.socket) -> None:
    try:
        while sock.recv(100):
            sock.sendall(b"+OK\r\n")
    except OSError:
        pass


def test_a_batch_larger_than_the_socket_buffer_is_sent_whole(pair: Pair) -> None:
    ours, theirs = pair
    request = bytes(4 * 1024 * 1024)
    received = []

    def read_all_then_answer() -> None:
        left = len(request)
        while left:
            received.append(theirs.recv(left))
            left -= len(received[-1])
        theirs.sendall(b"+OK\r\n")

    reader = threading.Thread(target=read_all_then_answer)
    reader.start()
    result = run([ours], [send([Exchange(request, OK, 1)])])
    reader.join()
    assert result.commands == 1
    assert b"".join(received) == request


@pytest.mark.parametrize("answer", [b"-OOM no memory\r\n", b"+OK\r\n-ERR unknown\r\n"])
def test_an_error_reply_is_no_work(pair: Pair, answer: bytes) -> None:
    ours, theirs = pair
    theirs.sendall(answer)
    with pytest.raises(LoadError, match=r"-OOM no memory|-ERR unknown"):
        run([ours], [send([Exchange(b"abc", OK, 2)])])


def test_a_closed_connection_is_an_error(pair: Pair) -> None:
    ours, theirs = pair
    theirs.shutdown(socket.SHUT_WR)
    with pytest.raises(LoadError, match="closed the connection"):
        run([ours], [send([Exchange(b"abc", OK, 1)])])


def test_a_reset_connection_is_an_error(pair: Pair) -> None:
    ours, theirs = pair
    theirs.close()
    with pytest.raises(LoadError, match="connection failed"):
        run([ours], [send([Exchange(b"abc", OK, 1)])])


def test_a_server_that_falls_silent_is_an_error(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load, "STALL_SECONDS", 0.01)
    with pytest.raises(LoadError, match="no reply"):
        run([pair[0]], [send([Exchange(b"abc", OK, 1)])])


def test_a_refused_connection_is_an_error() -> None:
    with socket.socket() as unheard:
        unheard.bind(("127.0.0.1", 0))
        port = unheard.getsockname()[1]
        with pytest.raises(LoadError, match="cannot connect"), load.connections(port, 1):
            pass
