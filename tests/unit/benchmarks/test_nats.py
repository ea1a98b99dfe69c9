"""JetStream's protocol in the comparison: what is sent, and what counts as an answer."""

import pytest

from benchmarks.clients import Client
from benchmarks.nats import Messages, NatsClient, Pong, ack_subjects, publish
from tools.bench.load import Exchange, LoadError

SIZE = 20
BODIES = [b"%020d" % number for number in range(3)]


def exchanges(client: Client, *replies: bytes) -> tuple[list[Exchange], list[float]]:
    """Return what worker 7 sends for a batch of the bodies if it gets these answers."""
    times: list[float] = []
    script = client.lives(7, iter([BODIES]), times)
    found = [next(script)]
    for reply in replies:
        assert found[-1].shape.complete(reply, found[-1].commands)
        try:
            found.append(script.send(reply))
        except StopIteration:
            break
    return found, times


def message(number: int, body: bytes) -> bytes:
    """Return a message as JetStream delivers it."""
    subject = b"$JS.ACK.jobs.workers.1.%d.%d.1700000000000000000.0" % (number, number)
    return b"MSG jobs 1 %b %d\r\n%b\r\n" % (subject, len(body), body)


def stored(number: int) -> bytes:
    """Return JetStream's acknowledgement of a message."""
    body = b'{"stream":"jobs", "seq":%d}' % number
    return b"MSG _INBOX.7 1 %d\r\n%b\r\n" % (len(body), body)


def test_messages_of_jetstream_are_acknowledged_with_the_next_batch() -> None:
    added = stored(9) + b"PING\r\n" + stored(10) + stored(11)
    taken = message(9, BODIES[0]) + message(10, BODIES[1]) + b"PING\r\n" + message(11, BODIES[2])
    found, times = exchanges(NatsClient(SIZE, files=True), added, taken)
    inbox = b"_INBOX.7"
    assert found[0].request == b"".join([publish(b"jobs", body, inbox) for body in BODIES])
    wish = b'{"batch":3,"expires":30000000000}'
    # A PING from the server gets its PONG with the next data sent.
    pull = publish(b"$JS.API.CONSUMER.MSG.NEXT.jobs.workers", wish, inbox)
    assert found[1].request == b"PONG\r\n" + pull
    acks = [
        publish(b"$JS.ACK.jobs.workers.1.%d.%d.1700000000000000000.0" % (n, n), b"+ACK")
        for n in (9, 10, 11)
    ]
    assert found[2].request == b"PONG\r\n" + b"".join(acks) + b"PING\r\n"
    assert len(times) == 1


def test_a_worker_that_only_adds_waits_for_the_stream() -> None:
    script = NatsClient(SIZE, files=True).adds(7, iter([BODIES, BODIES[:1]]))
    first = next(script)
    assert first.request == b"".join([publish(b"jobs", body, b"_INBOX.7") for body in BODIES])
    replies = stored(1) + stored(2) + b"PING\r\n" + stored(3)
    assert first.shape.complete(replies, first.commands)
    second = script.send(replies)
    assert second.request == b"PONG\r\n" + publish(b"jobs", BODIES[0], b"_INBOX.7")
    assert not second.shape.complete(b"", second.commands)


def test_a_worker_that_only_takes_acknowledges_with_the_next_pull() -> None:
    script = NatsClient(SIZE, files=True).takes(7, iter([1, 1]))
    pull = publish(
        b"$JS.API.CONSUMER.MSG.NEXT.jobs.workers",
        b'{"batch":1,"expires":30000000000}',
        b"_INBOX.7",
    )
    assert next(script).request == pull
    acks = [
        publish(b"$JS.ACK.jobs.workers.1.%d.%d.1700000000000000000.0" % (n, n), b"+ACK")
        for n in (1, 2)
    ]
    assert script.send(message(1, BODIES[0])).request == acks[0] + pull
    assert script.send(message(2, BODIES[1])).request == acks[1] + b"PING\r\n"


def test_a_publication_names_its_size() -> None:
    assert publish(b"jobs", b"abc") == b"PUB jobs 3\r\nabc\r\n"
    assert publish(b"jobs", b"", b"me") == b"PUB jobs me 0\r\n\r\n"


def test_a_delivered_message_says_where_to_acknowledge_it() -> None:
    assert ack_subjects(message(1, b"a") + message(20, b"b")) == [
        b"$JS.ACK.jobs.workers.1.1.1.1700000000000000000.0",
        b"$JS.ACK.jobs.workers.1.20.20.1700000000000000000.0",
    ]


def test_messages_are_complete_with_the_last_byte() -> None:
    shape = Messages(b"$JS.ACK.")
    reply = message(1, b"abc") + message(2, b"def")
    assert [n for n in range(len(reply) + 1) if shape.complete(reply[:n], 2)] == [len(reply)]


@pytest.mark.parametrize(
    "reply",
    [
        b"-ERR 'Unknown Protocol Operation'\r\n",
        b'MSG _INBOX.7 1 60\r\n{"error":{"code":503,"description":"no space"},"stream":"jobs"}\r\n',
        b"HMSG _INBOX.7 1 28 28\r\nNATS/1.0 408 Timeout\r\n\r\n\r\n",
        stored(1) + stored(2),
    ],
)
def test_any_other_answer_of_jetstream_is_no_work(reply: bytes) -> None:
    with pytest.raises(LoadError):
        Messages(b'{"stream":').complete(reply, 1)


def test_a_ping_may_come_before_the_last_pong() -> None:
    assert Pong(b"PONG\r\n").complete(b"PING\r\nPONG\r\n", 1)
    assert not Pong(b"PONG\r\n").complete(b"PING\r\n", 1)
