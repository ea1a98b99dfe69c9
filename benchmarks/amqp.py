"""The parts of an AMQP 0-9-1 client that the comparison needs, and RabbitMQ.

A worker's connection has one channel, on which it publishes with confirms and consumes with manual
acknowledgements and a prefetch of one batch. RabbitMQ pushes jobs to a consumer, so a batch is one
exchange: one send acknowledges the last batch (with a single frame) and publishes this one; the
confirms and as many deliveries come back. A worker never has more than one batch of jobs, so no
others arrive before these are acknowledged.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from benchmarks.clients import Batches, Client
from tools.bench.load import STALL_SECONDS, Exchange, LoadError, Script, Shape, dial, receive
from tools.bench.scripts import NOT_TIMED

now: Final = time.perf_counter
GREETING: Final = b"AMQP\x00\x00\x09\x01"
METHOD, HEADER, BODY = 1, 2, 3
FRAME_END: Final = 0xCE
FRAME_EXTRA: Final = 8  # type, channel, size; end
CHANNEL: Final = 1

START, START_OK, TUNE, TUNE_OK = (10, 10), (10, 11), (10, 30), (10, 31)
OPEN, OPEN_OK, CLOSE, CLOSE_OK = (10, 40), (10, 41), (10, 50), (10, 51)
CHANNEL_OPEN, CHANNEL_OPEN_OK = (20, 10), (20, 11)
DECLARE, DECLARE_OK = (50, 10), (50, 11)
QOS, QOS_OK, CONSUME, CONSUME_OK, CANCEL, CANCEL_OK = (
    *((60, 10), (60, 11), (60, 20), (60, 21)),
    *((60, 30), (60, 31)),
)
PUBLISH, DELIVER, ACK = (60, 40), (60, 60), (60, 80)
CONFIRM, CONFIRM_OK = (85, 10), (85, 11)

QUEUE: Final = b"bench"
TAG: Final = b"c"
NO_TABLE: Final = b"\0\0\0\0"
HAS_DELIVERY_MODE: Final = 1 << 12
TRANSIENT, PERSISTENT = 1, 2
PASSIVE, DURABLE = 1, 2
WAIT, NO_WAIT = 0, 8

Method = tuple[int, int]


class Frame(NamedTuple):
    """One frame: its type, channel and payload."""

    kind: int
    channel: int
    payload: bytes

    @property
    def method(self) -> Method:
        """The class and number of the method, if this is a method frame."""
        first, second = struct.unpack_from(">HH", self.payload)
        return first, second


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    """An encoded frame."""
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + bytes((FRAME_END,))


def method(name: Method, arguments: bytes = b"", channel: int = CHANNEL) -> bytes:
    """An encoded method frame."""
    return frame(METHOD, channel, struct.pack(">HH", *name) + arguments)


def short(text: bytes) -> bytes:
    """A short string."""
    return bytes((len(text),)) + text


def long(text: bytes) -> bytes:
    """A long string."""
    return struct.pack(">I", len(text)) + text


def argument_table(words: Mapping[str, str | int]) -> bytes:
    """A table of arguments."""
    table = b""
    for name, value in words.items():
        coded = b"I" + struct.pack(">i", value) if isinstance(value, int) else b""
        table += short(name.encode()) + (coded or b"S" + long(str(value).encode()))
    return long(table)


def publish(queue: bytes, size: int, mode: int) -> bytes:
    """The frames that publish a message to a queue, up to the body; append that and the frame
    end."""
    properties = struct.pack(">HHQHB", 60, 0, size, HAS_DELIVERY_MODE, mode)
    return (
        method(PUBLISH, b"\0\0" + short(b"") + short(queue) + b"\0")
        + frame(HEADER, CHANNEL, properties)
        + struct.pack(">BHI", BODY, CHANNEL, size)
    )


def deliver(queue: bytes, tag: int, size: int, mode: int, body: bytes) -> bytes:
    """The frames with which a server delivers such a message."""
    arguments = short(TAG) + struct.pack(">QB", tag, 0) + short(b"") + short(queue)
    properties = struct.pack(">HHQHB", 60, 0, size, HAS_DELIVERY_MODE, mode)
    return (
        method(DELIVER, arguments) + frame(HEADER, CHANNEL, properties) + frame(BODY, CHANNEL, body)
    )


def ack(tag: int, multiple: bool) -> bytes:
    """Acknowledges a delivery, or confirms a publication; with ``multiple``, all up to it."""
    return method(ACK, struct.pack(">QB", tag, multiple))


def split(data: bytes) -> list[Frame]:
    """Split into frames. Raises LoadError if the bytes are not whole frames."""
    found = []
    at = 0
    while at < len(data):
        if len(data) - at < FRAME_EXTRA:
            raise LoadError("incomplete frame")
        kind, channel, size = struct.unpack_from(">BHI", data, at)
        end = at + FRAME_EXTRA + size
        if data[end - 1 : end] != bytes((FRAME_END,)):
            raise LoadError(f"not a frame: {data[at : at + 100]!r}")
        found.append(Frame(kind, channel, data[at + 7 : end - 1]))
        at = end
    return found


def whole(data: bytes) -> bool:
    """Whether the bytes are not empty and end with a frame end."""
    at = 0
    while at + FRAME_EXTRA <= len(data):
        (size,) = struct.unpack_from(">I", data, at + 3)
        at += FRAME_EXTRA + size
    return at == len(data) > 0


class Lives(Shape):
    """The reply to a batch: confirms of all its jobs, and as many deliveries; or only either of
    them. Each connection has its own, because it reads each frame once and tracks the next number
    to be confirmed."""

    _HEAD_OF_DELIVERY = struct.pack(">HH", *DELIVER)
    _HEAD_OF_ACK = struct.pack(">HH", *ACK)

    def __init__(
        self, size: int, mode: int, confirms: bool = True, deliveries: bool = True
    ) -> None:
        self._confirms = confirms
        self._deliveries = deliveries
        self._delivery = len(deliver(QUEUE, 0, size, mode, b"x" * size))
        self._ack = len(ack(0, False))
        self._confirmed = 0  # everything up to this number
        self._single: set[int] = set()  # and these
        self._at = 0
        self._delivered = 0
        self._base = 0

    def complete(self, reply: bytes, count: int) -> bool:
        at, end = self._at, len(reply)
        while end - at >= self._ack:
            head = reply[at + 7 : at + 11]
            if head == self._HEAD_OF_DELIVERY:
                if end - at < self._delivery:
                    break
                self._delivered += 1
                at += self._delivery
                if reply[at - 1] != FRAME_END:
                    raise LoadError(f"not a delivery: {reply[at - self._delivery : at]!r}")
            elif head == self._HEAD_OF_ACK:
                tag, multiple = struct.unpack_from(">QB", reply, at + 11)
                self._confirm(tag, bool(multiple))
                at += self._ack
            else:
                raise LoadError(f"the server sent {reply[at : at + 200]!r}")
        self._at = at
        confirmed = self._confirmed - self._base + len(self._single)
        deliveries, confirms = count * self._deliveries, count * self._confirms
        if self._delivered > deliveries or confirmed > confirms:
            raise LoadError(f"{self._delivered} deliveries, {confirmed} confirms of {count}")
        if at < end or self._delivered < deliveries or confirmed < confirms:
            return False
        self._at = self._delivered = 0
        self._single.clear()
        self._confirmed = self._base = self._base + confirms
        return True

    def _confirm(self, tag: int, multiple: bool) -> None:
        if multiple:
            self._confirmed = max(self._confirmed, tag)
            self._single = {one for one in self._single if one > tag}
        elif tag > self._confirmed:
            self._single.add(tag)


class Answers(Shape):
    """The replies to methods: one of each, in any order."""

    def __init__(self, *methods: Method) -> None:
        self._methods = sorted(methods)

    def complete(self, reply: bytes, count: int) -> bool:
        if not whole(reply):
            return False
        found = sorted(frame.method for frame in split(reply))
        if len(found) < len(self._methods):
            return False
        if found != self._methods:
            raise LoadError(f"the server sent {reply[-200:]!r}")
        return True


class RabbitClient(Client):
    """RabbitMQ: with ``durable`` the queue is durable and its messages persistent. ``words`` are
    the queue's arguments."""

    def __init__(
        self, size: int, durable: bool, words: Mapping[str, str | int] | None = None
    ) -> None:
        self._size = size
        self._durable = durable
        self._arguments = argument_table(words or {})
        self._mode = PERSISTENT if durable else TRANSIENT
        self._publish = publish(QUEUE, size, self._mode)

    def prepare(self, port: int) -> None:
        with self._channel(port) as sock:
            flags = DURABLE if self._durable else 0
            _expect(sock, self._declaration(flags), DECLARE_OK)
            self.close(sock)

    def connect(self, port: int, worker: int, pipeline: int) -> socket.socket:
        sock = self.taker(port, worker, pipeline)
        sock.setblocking(True)
        _expect(sock, _consume(WAIT), CONSUME_OK)
        sock.setblocking(False)
        return sock

    def taker(self, port: int, worker: int, pipeline: int) -> socket.socket:
        sock = self._channel(port)
        _expect(sock, method(CONFIRM, b"\0"), CONFIRM_OK)
        _expect(sock, method(QOS, struct.pack(">IHB", 0, pipeline, 0)), QOS_OK)
        sock.setblocking(False)
        return sock

    def adds(self, worker: int, batches: Batches) -> Script:
        shape = Lives(self._size, self._mode, deliveries=False)
        for bodies in batches:
            yield Exchange(self._adding(bodies), shape, len(bodies))

    def takes(self, worker: int, counts: Iterable[int]) -> Script:
        shape = Lives(self._size, self._mode, confirms=False)
        acks = _consume(NO_WAIT)  # now: the jobs come at once
        done = 0
        for count in counts:
            yield Exchange(acks, shape, count)
            done += count
            acks = ack(done, multiple=True)
        yield _end(acks)

    def lives(self, worker: int, batches: Batches, times: list[float]) -> Script:
        shape = Lives(self._size, self._mode)
        acks = b""
        done = 0
        started = NOT_TIMED
        for bodies in batches:
            yield Exchange(acks + self._adding(bodies), shape, len(bodies))
            ended = now()
            times.append(ended - started)
            started = ended
            done += len(bodies)
            acks = ack(done, multiple=True)
        yield _end(acks)

    def unfinished(self, port: int) -> int:
        with self._channel(port) as sock:
            answer = _expect(sock, self._declaration(PASSIVE), DECLARE_OK)
            self.close(sock)
        # The reply has the queue's name, ready messages and consumers. Unacknowledged messages are
        # back in the queue once their consumer is gone.
        messages, consumers = struct.unpack_from(">II", answer.payload, 4 + 1 + len(QUEUE))
        return int(messages) + int(consumers)

    def close(self, sock: socket.socket) -> None:
        with sock:
            sock.settimeout(STALL_SECONDS)
            arguments = struct.pack(">H", 200) + short(b"") + struct.pack(">HH", 0, 0)
            sock.sendall(method(CLOSE, arguments, channel=0))
            # After a failure, other replies may precede it.
            receive(sock, lambda data: whole(data) and split(data)[-1].method == CLOSE_OK)

    def _adding(self, bodies: Sequence[bytes]) -> bytes:
        head, end = self._publish, bytes((FRAME_END,))
        return b"".join([head + body + end for body in bodies])

    def _declaration(self, flags: int) -> bytes:
        return method(DECLARE, b"\0\0" + short(QUEUE) + bytes((flags,)) + self._arguments)

    def _channel(self, port: int) -> socket.socket:
        sock = dial(port)
        try:
            _expect(sock, GREETING, START)
            login = NO_TABLE + short(b"PLAIN") + long(b"\0guest\0guest") + short(b"en_US")
            tune = _expect(sock, method(START_OK, login, channel=0), TUNE)
            channels, frame_size, _ = struct.unpack_from(">HIH", tune.payload, 4)
            limits = struct.pack(">HIH", channels, frame_size, 0)
            opening = method(TUNE_OK, limits, channel=0)
            opening += method(OPEN, short(b"/") + short(b"") + b"\0", channel=0)
            _expect(sock, opening, OPEN_OK)
            _expect(sock, method(CHANNEL_OPEN, short(b"")), CHANNEL_OPEN_OK)
        except BaseException:
            sock.close()
            raise
        return sock


def _consume(wait: int) -> bytes:
    return method(CONSUME, b"\0\0" + short(QUEUE) + short(TAG) + bytes((wait,)) + NO_TABLE)


def _end(acks: bytes) -> Exchange:
    # Cancel the consumer before its last acknowledgements, so that it gets no jobs for which
    # others wait. The reply to QOS comes after the channel has processed the acknowledgements.
    last = method(CANCEL, short(TAG) + b"\0") + acks + method(QOS, struct.pack(">IHB", 0, 1, 0))
    return Exchange(last, Answers(CANCEL_OK, QOS_OK), 2)


def _expect(sock: socket.socket, request: bytes, answer: Method) -> Frame:
    sock.sendall(request)
    frames: Sequence[Frame] = split(receive(sock, whole))
    if len(frames) != 1 or frames[0].kind != METHOD or frames[0].method != answer:
        raise LoadError(f"the server answered {frames[0].payload[:200]!r}, not {answer}")
    return frames[0]
