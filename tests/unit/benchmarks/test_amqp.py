"""The AMQP client of the comparison: frames on the wire, and the answer to a batch."""

import socket
import threading

import pytest

from benchmarks import amqp
from benchmarks.amqp import (
    CANCEL_OK,
    CLOSE,
    CLOSE_OK,
    DECLARE_OK,
    QOS_OK,
    Answers,
    Lives,
    RabbitClient,
    ack,
    argument_table,
    deliver,
    frame,
    method,
    publish,
    split,
    whole,
)
from tools.bench.load import LoadError

BODY = b"x" * 100


def delivery(tag: int) -> bytes:
    return deliver(amqp.QUEUE, tag, len(BODY), amqp.PERSISTENT, BODY)


def lives() -> Lives:
    return Lives(len(BODY), amqp.PERSISTENT)


def test_a_method_is_a_frame_with_its_class_and_number() -> None:
    assert method((10, 51), channel=0) == bytes.fromhex("01 0000 00000004 000a 0033 ce")


def test_an_acknowledge_is_as_the_protocol_has_it() -> None:
    assert ack(258, multiple=True) == bytes.fromhex(
        "01 0001 0000000d 003c 0050 0000000000000102 01 ce"
    )


def test_a_publication_is_a_method_a_header_and_a_body() -> None:
    assert publish(b"q", 3, amqp.PERSISTENT) + b"abc\xce" == bytes.fromhex(
        # basic.publish to the default exchange with the routing key q
        "01 0001 0000000a 003c 0028 0000 00 01 71 00 ce"
        # the size of the body is 3; the only property is the delivery mode, 2
        "02 0001 0000000f 003c 0000 0000000000000003 1000 02 ce"
        "03 0001 00000003 616263 ce"
    )


def test_frames_come_apart_again() -> None:
    found = split(frame(1, 0, b"\0\x0a\0\x0b!") + frame(3, 7, b"body"))
    assert [(one.kind, one.channel) for one in found] == [(1, 0), (3, 7)]
    assert found[0].method == (10, 11)
    assert found[1].payload == b"body"


@pytest.mark.parametrize("data", [b"AMQP\0\0\x09\x01....", frame(1, 0, b"")[:-1] + b"\0", b"\1"])
def test_an_invalid_frame_is_refused(data: bytes) -> None:
    with pytest.raises(LoadError, match="frame"):
        split(data)


def test_only_whole_frames_are_whole() -> None:
    data = frame(1, 0, b"abcd") + frame(3, 1, b"")
    assert [size for size in range(len(data) + 1) if whole(data[:size])] == [12, 20]


def test_a_batch_is_answered_when_all_is_confirmed_and_as_much_delivered() -> None:
    shape = lives()
    assert not shape.complete(ack(2, multiple=True) + delivery(1), 2)
    assert shape.complete(ack(2, multiple=True) + delivery(1) + delivery(2), 2)


@pytest.mark.parametrize(
    "confirms",
    [
        [(4, True)],
        [(1, False), (2, False), (3, False), (4, False)],
        [(4, False), (3, True)],
        [(2, False), (4, False), (3, True)],
        [(3, False), (1, False), (2, False), (4, True)],
    ],
)
def test_confirms_come_one_by_one_or_together_in_any_order(
    confirms: list[tuple[int, bool]],
) -> None:
    shape = lives()
    deliveries = b"".join(map(delivery, range(1, 5)))
    reply = deliveries
    for tag, multiple in confirms:
        assert not shape.complete(reply, 4)
        reply += ack(tag, multiple)
    assert shape.complete(reply, 4)
    # The numbers of the next batch continue from there.
    again = deliveries + ack(7, True)
    assert not shape.complete(again, 4)
    assert shape.complete(again + ack(8, False), 4)


def test_an_answer_in_any_pieces_is_the_same() -> None:
    shape = lives()
    reply = ack(1, False) + delivery(1) + ack(2, False) + delivery(2)
    assert [size for size in range(len(reply) + 1) if shape.complete(reply[:size], 2)] == [
        len(reply)
    ]


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (method((20, 40), b"\x01\x94\x09NOT_FOUND"), "NOT_FOUND"),
        (delivery(1) + delivery(2), "2 deliveries"),
        (ack(2, True) + delivery(1), "2 confirms"),
        (delivery(1)[:-1] + b"?" + ack(1, True), "not a delivery"),
    ],
)
def test_any_other_answer_is_no_work(reply: bytes, said: str) -> None:
    with pytest.raises(LoadError, match=said):
        lives().complete(reply, 1)


def test_the_answers_to_two_methods_come_in_any_order() -> None:
    replies = [method(CANCEL_OK, b"\1c"), method(QOS_OK)]
    for first, second in (replies, replies[::-1]):
        shape = Answers(CANCEL_OK, QOS_OK)
        assert not shape.complete(first, 2)
        assert not shape.complete(first + second[:-1], 2)
        assert shape.complete(first + second, 2)
    with pytest.raises(LoadError):
        Answers(CANCEL_OK, QOS_OK).complete(replies[0] + method(DECLARE_OK), 2)


def test_a_worker_ends_the_last_batch_together_with_the_next_adds() -> None:
    times: list[float] = []
    script = RabbitClient(3, durable=True).lives(7, iter([[b"abc", b"def"], [b"ghi"]]), times)
    head = publish(amqp.QUEUE, 3, amqp.PERSISTENT)
    first = next(script)
    assert first.request == head + b"abc\xce" + head + b"def\xce"
    assert first.commands == 2
    assert script.send(b"").request == ack(2, True) + head + b"ghi\xce"
    last = split(script.send(b"").request)
    # The consumer is gone before its last jobs are, so that it gets no more.
    assert [one.method for one in last] == [(60, 30), (60, 80), (60, 10)]
    with pytest.raises(StopIteration):
        script.send(b"")
    assert len(times) == 2


def test_a_worker_that_only_adds_waits_for_confirms() -> None:
    script = RabbitClient(3, durable=True).adds(7, iter([[b"abc", b"def"], [b"ghi"]]))
    first = next(script)
    assert first.shape.complete(ack(2, multiple=True), first.commands)
    second = script.send(b"")
    assert second.request == publish(amqp.QUEUE, 3, amqp.PERSISTENT) + b"ghi\xce"
    assert not second.shape.complete(b"", second.commands)
    assert second.shape.complete(ack(3, multiple=False), second.commands)


def test_a_worker_that_only_takes_consumes_first_and_cancels_with_the_last_batch() -> None:
    script = RabbitClient(len(BODY), durable=True).takes(7, iter([2, 2]))
    first = next(script)
    assert [one.method for one in split(first.request)] == [amqp.CONSUME]
    assert not first.shape.complete(delivery(1), first.commands)
    assert first.shape.complete(delivery(1) + delivery(2), first.commands)
    assert script.send(b"").request == ack(2, multiple=True)
    last = split(script.send(b"").request)
    assert [one.method for one in last] == [amqp.CANCEL, amqp.ACK, amqp.QOS]


def test_the_arguments_of_a_queue_are_numbers_or_texts() -> None:
    assert argument_table({}) == amqp.NO_TABLE
    assert argument_table({"a": 2, "bc": "d"}) == bytes.fromhex(
        "00000010 01 61 49 00000002 02 6263 53 00000001 64"
    )


def test_a_connection_ends_politely_even_after_a_failure() -> None:
    ours, theirs = socket.socketpair()
    heard = []

    def answer() -> None:
        heard.append(theirs.recv(1000))
        theirs.sendall(method(QOS_OK) + method(CLOSE_OK, channel=0))

    with theirs:
        thread = threading.Thread(target=answer)
        thread.start()
        RabbitClient(3, durable=True).close(ours)
        thread.join()
    assert [one.method for one in split(heard[0])] == [CLOSE]
    assert ours.fileno() == -1
