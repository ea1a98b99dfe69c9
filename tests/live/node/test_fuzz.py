"""Fuzzing: whatever clients send, the node survives, serves others, and reports the error.

Each test prints its seed, which a failure report shows; FUZZ_SEED=n repeats the run.
"""

import os
import random
import socket
import time
from collections.abc import Callable

import hiredis
import pytest

from tests.support.harness import HANG_SECONDS, LiveNode, NodeFactory
from tests.support.live_helpers import ANY_ID, QUIT, packed

SEED = int(os.environ.get("FUZZ_SEED", "0")) or random.randrange(1 << 32)
SECONDS = 2.0

SAMPLES = [
    packed("PING"),
    packed("ADDJOB", "q", "body", 0, "RETRY", 1, "TTL", 10),
    packed("GETJOB", "NOHANG", "COUNT", 10, "WITHCOUNTERS", "FROM", "q", "r"),
    packed("ACKJOB", ANY_ID, ANY_ID),
    packed("QSCAN", 0, "COUNT", 10, "MINLEN", 1),
    packed("JSCAN", "QUEUE", "q", "STATE", "queued", "REPLY", "all"),
    packed("CONFIG", "GET", "*"),
    packed("HELLO", 3),
    b"PING 'a b' \"\\x00\"\r\n",
    b"ADDJOB q body 0\r\n",
    b"*0\r\n",
    b"\r\n",
]
NOISE = [b"\r", b"\n", b"\r\n", b"*", b"$", b"-1", b":", b"+", b"(", b"%", b"~", b">", b"_", b"|"]
NOISE += [b"=", b"#", b"!", b",", b"\0", b'"', b"'", b"\\", b"9" * 20, b"1048576", b"536870912"]


def mutate(rng: random.Random) -> bytes:
    """Return a few valid requests with some damage."""
    data = bytearray(b"".join(rng.choices(SAMPLES, k=rng.randrange(1, 8))))
    for _ in range(rng.randrange(6)):
        place = rng.randrange(len(data) + 1)
        kind = rng.randrange(5)
        if kind == 0:
            data[place:place] = rng.choice(NOISE)
        elif kind == 1:
            del data[place : place + rng.randrange(1, 8)]
        elif kind == 2:
            data[place : place + 1] = bytes((rng.randrange(256),))
        elif kind == 3:
            data[place:place] = rng.randbytes(rng.randrange(1, 30))
        else:
            data[place:place] = data[place : place + rng.randrange(1, 20)]
    return bytes(data)


def anything(rng: random.Random) -> bytes:
    """Return random bytes, or a random mix of parts of requests."""
    if rng.random() < 0.3:
        return rng.randbytes(rng.randrange(1, 2000))
    return b"".join(rng.choices([*NOISE, b"1", b"2", b"4", b"PING"], k=rng.randrange(1, 200)))


def exchange_nonsense(node: LiveNode, data: bytes, rng: random.Random) -> bytes:
    """Send ``data`` in pieces; return all replies.

    The node closes the connection, either by itself or after we have closed our half.
    """
    with socket.create_connection((node.host, node.port), timeout=HANG_SECONDS) as sock:
        answer = b""
        try:
            while data:
                size = rng.choice((1, 7, 100, len(data)))
                sock.sendall(data[:size])
                data = data[size:]
            sock.sendall(b"\r\n" + QUIT)
            sock.shutdown(socket.SHUT_WR)
            while part := sock.recv(65536):
                answer += part
        except OSError as failure:
            # The node may have closed the connection. Only a timeout is a failure.
            if isinstance(failure, TimeoutError):
                raise
        return answer


def check_replies(answer: bytes) -> None:
    """Check that every reply is well-formed, and that a protocol error comes last."""
    reader = hiredis.Reader()
    reader.feed(answer)
    while (reply := reader.gets()) is not False:
        if isinstance(reply, hiredis.ReplyError):
            assert "internal error" not in str(reply)
    assert not reader.has_data()


@pytest.mark.pure
@pytest.mark.parametrize("make", [mutate, anything])
def test_no_bytes_crash_or_hang_the_node(
    node: LiveNode, make: Callable[[random.Random], bytes]
) -> None:
    print("seed", SEED)
    rng = random.Random(SEED)
    control = node.wire()
    until = time.monotonic() + SECONDS
    rounds = 0
    while rounds < 50 or time.monotonic() < until:
        data = make(rng)
        try:
            check_replies(exchange_nonsense(node, data, rng))
        except Exception as failure:
            failure.add_note(f"seed {SEED}, round {rounds}, data {data!r}")
            raise
        if rounds % 10 == 0:
            assert control("PING") == b"PONG"
        rounds += 1
    assert control("PING") == b"PONG"


Word = bytes | str | int

WORDS: list[Word] = [
    "q", "r", "", "FROM", "COUNT", "TIMEOUT", "NOHANG", "WITHCOUNTERS", "0", "1", "-1", "2", "3",
    "10", "4294967296", "9223372036854775807", "-9223372036854775808", "18446744073709551616",
    "1e5", "nan", "inf", "*", "h?", "[", "RETRY", "TTL", "DELAY", "REPLICATE", "MAXLEN", "ASYNC",
    "QUEUE", "STATE", "queued", "active", "REPLY", "all", "id", "BUSYLOOP", "MINLEN", "in", "out",
    "none", "state", "bcast", "GET", "SET", "RESET", "LIST", "INFO", "DOCS", "ID", "KILL", "ADDR",
    "TYPE", "normal", "SKIPME", "yes", "no", "on", "off", "GETNAME", "SETNAME", "SETINFO", "LEN",
    "lib-name", "UNBLOCK", "ERROR", "HISTORY", "LATEST", "GRAPH", "DOCTOR", "NODES", "MYID",
    "FORGET", "MEET", "127.0.0.1", "7711", "BCAST", "FORCE", "IMPORTRATE", "MAXIDLE", "RESETSTAT",
    "hz", "maxmemory", "loglevel", "slowlog-log-slower-than",
    "latency-monitor-threshold", "tcp-keepalive", "slowlog-max-len", "x" * 1000,
    b"\xff\xfe\0\r\n", b"\0", ANY_ID,
]  # fmt: skip

# Commands that end the node, block everybody, or silence the connection on purpose.
NOT_FUZZED = {b"shutdown", b"monitor", b"debug", b"quit"}
NOT_WITH = {"pause", "rewrite", "reply", "requirepass"}


def random_command(rng: random.Random, names: list[bytes], ids: list[bytes]) -> list[Word]:
    """Return one of ``names`` with arguments that may mean something to it."""
    while True:
        words: list[Word] = [*rng.choices(WORDS, k=rng.randrange(7))]
        for place in range(len(words)):
            if ids and rng.random() < 0.15:
                words[place] = rng.choice(ids[-100:])
        name = rng.choice(names)
        if name in (b"getjob", b"getjobs"):
            words[:0] = rng.choice((["NOHANG"], ["TIMEOUT", "1"]))
        if name not in (b"client", b"config") or not NOT_WITH & {str(w).lower() for w in words}:
            return [name, *words]


@pytest.mark.pure
def test_no_arguments_crash_a_command(disque_server: NodeFactory) -> None:
    print("seed", SEED)
    rng = random.Random(SEED)
    node = disque_server("--maxmemory", "20mb")
    wire = node.wire()
    names = wire("COMMAND", "LIST")
    assert isinstance(names, list)
    names = sorted(set(names) - NOT_FUZZED)
    ids: list[bytes] = []
    until = time.monotonic() + SECONDS
    rounds = 0
    while rounds < 500 or time.monotonic() < until:
        rounds += 1
        words = random_command(rng, names, ids)
        try:
            reply = wire(*words)
        except EOFError:  # CLIENT KILL hit this connection
            reply = None
            wire = node.wire()
        except TimeoutError:
            pytest.fail(f"no reply to {words} (seed {SEED})")
        assert "internal error" not in str(reply), (words, SEED)
        if words[0] == b"addjob" and isinstance(reply, bytes):
            ids.append(reply)
        if rounds % 50 == 0:
            other = node.wire()
            assert other("PING") == b"PONG"
            other.close()
