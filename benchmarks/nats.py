"""NATS JetStream: a work queue stream with one pull consumer shared by all workers.

A worker publishes a batch and waits for the stream's confirmations, requests as many messages, and
acknowledges each. JetStream does not reply to acknowledgements, so they are sent with the next
batch.
"""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Iterable, Sequence
from typing import Final

from benchmarks.clients import Batches, Client
from tools.bench.dialects import CRLF, ConstantReply
from tools.bench.load import Exchange, LoadError, Script, Shape, dial, receive
from tools.bench.scripts import NOT_TIMED

now: Final = time.perf_counter
STREAM: Final = b"jobs"
CONSUMER: Final = b"workers"
CONNECT: Final = (
    b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true}\r\n'
)
PING, PONG = b"PING\r\n", b"PONG\r\n"
PULL_NANOSECONDS: Final = 30 * 10**9
ANY_NUMBER: Final = 1_000_000
INBOX: Final = b"_INBOX.%d"


def publish(subject: bytes, payload: bytes, reply: bytes = b"") -> bytes:
    """A PUB, with the subject for the reply, if any."""
    words = b" ".join((b"PUB", subject, reply) if reply else (b"PUB", subject))
    return b"%b %d\r\n%b\r\n" % (words, len(payload), payload)


def ack_subjects(reply: bytes) -> list[bytes]:
    """The subjects for acknowledging messages of the form `MSG subject sid reply-to size`, body."""
    return [line.split(b" ")[3] for line in reply.replace(PING, b"").split(CRLF)[:-1:2]]


class Messages(Shape):
    """Messages that each contain ``sign``, perhaps with a PING among them."""

    def __init__(self, sign: bytes) -> None:
        self._sign = sign

    def complete(self, reply: bytes, count: int) -> bool:
        found = reply.count(self._sign)
        lines = reply.count(CRLF) - reply.count(PING)
        if found == count and lines == 2 * count:
            if not reply.endswith(CRLF):
                raise LoadError(f"the server sent {reply[-100:]!r}")
            return True
        if found > count or lines > 2 * count or b"-ERR" in reply or b'"error"' in reply:
            raise LoadError(f"the server sent {reply[:300]!r}")
        if b"HMSG" in reply:  # a status, not a message
            raise LoadError(f"the server sent {reply[-300:]!r}")
        return False


class Pong(ConstantReply):
    """A PONG, perhaps after a PING."""

    def complete(self, reply: bytes, count: int) -> bool:
        return super().complete(reply.replace(PING, b""), count)


class NatsClient(Client):
    """JetStream with messages in files, or in memory if ``files`` is False."""

    def __init__(self, size: int, files: bool) -> None:
        self._size = size
        self._files = files

    def prepare(self, port: int) -> None:
        stream: dict[str, object] = {
            "name": STREAM.decode(),
            "subjects": [STREAM.decode()],
            "retention": "workqueue",
            "storage": "file" if self._files else "memory",
        }
        _request(port, b"STREAM.CREATE." + STREAM, stream)
        config = {
            "durable_name": CONSUMER.decode(),
            "ack_policy": "explicit",
            "max_ack_pending": ANY_NUMBER,
            "max_waiting": ANY_NUMBER,
        }
        consumer: dict[str, object] = {"stream_name": STREAM.decode(), "config": config}
        _request(port, b"CONSUMER.DURABLE.CREATE.%b.%b" % (STREAM, CONSUMER), consumer)

    def connect(self, port: int, worker: int, pipeline: int) -> socket.socket:
        sock = _connected(port)
        sock.sendall(b"SUB %b 1\r\n%b" % (INBOX % worker, PING))
        receive(sock, lambda reply: reply.endswith(PONG))
        sock.setblocking(False)
        return sock

    def lives(self, worker: int, batches: Batches, times: list[float]) -> Script:
        stored, taken = Messages(b'{"stream":'), Messages(b"$JS.ACK.")
        acks = b""
        started = NOT_TIMED
        for bodies in batches:
            count = len(bodies)
            reply = yield Exchange(acks + self._adding(worker, bodies), stored, count)
            reply = yield Exchange(_answered(reply) + _pull(worker, count), taken, count)
            ended = now()
            times.append(ended - started)
            started = ended
            acks = _acks(reply)
        yield Exchange(acks + PING, Pong(PONG), 1)

    def adds(self, worker: int, batches: Batches) -> Script:
        stored = Messages(b'{"stream":')
        answer = b""
        for bodies in batches:
            request = answer + self._adding(worker, bodies)
            answer = _answered((yield Exchange(request, stored, len(bodies))))

    def takes(self, worker: int, counts: Iterable[int]) -> Script:
        taken = Messages(b"$JS.ACK.")
        acks = b""
        for count in counts:
            acks = _acks((yield Exchange(acks + _pull(worker, count), taken, count)))
        yield Exchange(acks + PING, Pong(PONG), 1)

    def unfinished(self, port: int) -> int:
        state = _request(port, b"STREAM.INFO." + STREAM, {}).get("state")
        if not isinstance(state, dict):
            raise LoadError("the stream has no state")
        return int(state["messages"])

    def _adding(self, worker: int, bodies: Sequence[bytes]) -> bytes:
        head = b"PUB %b %b %d\r\n" % (STREAM, INBOX % worker, self._size)
        return b"".join([head + body + CRLF for body in bodies])


def _pull(worker: int, count: int) -> bytes:
    """Requests as many messages."""
    next_messages = b"$JS.API.CONSUMER.MSG.NEXT.%b.%b" % (STREAM, CONSUMER)
    wish = b'{"batch":%d,"expires":%d}' % (count, PULL_NANOSECONDS)
    return publish(next_messages, wish, INBOX % worker)


def _acks(reply: bytes) -> bytes:
    """Acknowledges the messages in a reply, and answers its PINGs."""
    acks = [b"PUB %b 4\r\n+ACK\r\n" % one for one in ack_subjects(reply)]
    return _answered(reply) + b"".join(acks)


def _answered(reply: bytes) -> bytes:
    """The PONGs for the PINGs in a reply."""
    return PONG * reply.count(PING)


def _connected(port: int) -> socket.socket:
    sock = dial(port)
    try:
        receive(sock, lambda reply: reply.startswith(b"INFO ") and reply.endswith(CRLF))
        sock.sendall(CONNECT + PING)
        receive(sock, lambda reply: reply.endswith(PONG))
    except BaseException:
        sock.close()
        raise
    return sock


def _request(port: int, what: bytes, arguments: dict[str, object]) -> dict[str, object]:
    """Calls JetStream's API. Raises LoadError if the reply is an error."""
    with _connected(port) as sock:
        inbox = INBOX % 0
        body = json.dumps(arguments).encode()
        sock.sendall(b"SUB %b 1\r\n" % inbox + publish(b"$JS.API." + what, body, inbox))
        reply = receive(sock, lambda reply: reply.endswith((b"}\r\n", b"\r\n\r\n")))
    found = re.search(rb"^MSG [^\r]*\r\n(\{.*\})\r\n", reply, re.MULTILINE | re.DOTALL)
    answer = json.loads(found[1]) if found else None
    if not isinstance(answer, dict) or "error" in answer:
        raise LoadError(f"JetStream answered {reply[:300]!r}")
    return answer
