"""The line protocols of the comparison, and JetStream's: what is sent, what counts as an answer."""

import pytest

from tools.bench.compare.client import Client, LinesReply
from tools.bench.compare.lines import (
    BeanstalkClient,
    DisqueClient,
    LineClient,
    ListClient,
    StreamClient,
)
from tools.bench.compare.nats import Messages, NatsClient, Pong, ack_subjects, publish
from tools.bench.load import Exchange, LoadError
from tools.bench.workloads import encode

SIZE = 20
BODIES = [b"%020d" % number for number in range(3)]
ID = b"D-0123abcd-0123456789abcdef01234567-05a1"


def exchanges(client: Client, *replies: bytes) -> tuple[list[Exchange], list[float]]:
    """What worker 7 sends for a batch of the bodies, when it gets these answers."""
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


def entry(number: int, body: bytes) -> bytes:
    """What XREADGROUP answers with one entry of the stream."""
    name = b"1700000000000-%d" % number
    parts = (b"$5\r\nbench\r\n*1\r\n*2\r\n", b"$%d\r\n%b\r\n" % (len(name), name))
    return b"*1\r\n*2\r\n%b%b*2\r\n$1\r\nb\r\n$20\r\n%b\r\n" % (*parts, body)


def test_a_disque_job_is_added_taken_and_acknowledged() -> None:
    given = b"*1\r\n*3\r\n$5\r\nbench\r\n$40\r\n%b\r\n$20\r\n%b\r\n"
    found, times = exchanges(
        DisqueClient(SIZE),
        b"+%b\r\n" % ID * 3,
        b"".join([given % (ID, body) for body in BODIES]),
        b":1\r\n" * 3,
    )
    assert found[0].request == b"".join(encode(b"ADDJOB", b"bench", x, b"0") for x in BODIES)
    assert found[1].request == encode(b"GETJOB", b"NOHANG", b"FROM", b"bench") * 3
    assert found[2].request == encode(b"ACKJOB", ID) * 3
    assert len(times) == 1


def test_a_job_of_a_list_leaves_the_list_of_its_worker() -> None:
    taken = b"".join([b"$20\r\n%b\r\n" % body for body in BODIES])
    found, _ = exchanges(ListClient(SIZE), b":1\r\n:2\r\n:3\r\n", taken, b":1\r\n" * 3)
    mine = b"bench:in-hand:7"
    assert found[1].request == encode(b"RPOPLPUSH", b"bench", mine) * 3
    assert found[2].request == b"".join(encode(b"LREM", mine, b"-1", body) for body in BODIES)


@pytest.mark.parametrize("kept", [False, True])
def test_an_entry_of_a_stream_is_acknowledged_and_then_deleted_unless_it_is_kept(
    kept: bool,
) -> None:
    taken = b"".join([entry(number, body) for number, body in enumerate(BODIES, 9)])
    added = b"$15\r\n1700000000000-9\r\n$16\r\n1700000000000-10\r\n$16\r\n1700000000000-11\r\n"
    found, _ = exchanges(StreamClient(SIZE, kept), added, taken, b":1\r\n" * (3 if kept else 6))
    words = (b"XREADGROUP", b"GROUP", b"workers", b"w7", b"COUNT", b"1", b"STREAMS", b"bench", b">")
    assert found[1].request == encode(*words) * 3
    names = [b"1700000000000-%d" % number for number in (9, 10, 11)]
    acks = b"".join(encode(b"XACK", b"bench", b"workers", name) for name in names)
    deletes = b"".join(encode(b"XDEL", b"bench", name) for name in names)
    assert found[2].request == (acks if kept else acks + deletes)


def test_a_beanstalkd_job_is_put_reserved_and_deleted() -> None:
    taken = b"".join([b"RESERVED %d 20\r\n%b\r\n" % (n, x) for n, x in enumerate(BODIES, 9)])
    found, times = exchanges(
        BeanstalkClient(SIZE),
        b"INSERTED 9\r\nINSERTED 10\r\nINSERTED 11\r\n",
        taken,
        b"DELETED\r\n" * 3,
    )
    assert found[0].request == b"".join([b"put 0 0 120 20\r\n%b\r\n" % body for body in BODIES])
    assert found[1].request == b"reserve-with-timeout 0\r\n" * 3
    assert found[2].request == b"delete 9\r\ndelete 10\r\ndelete 11\r\n"
    assert len(times) == 1


@pytest.mark.parametrize(
    ("client", "reply", "said"),
    [
        (BeanstalkClient(SIZE), b"OUT_OF_MEMORY\r\n", "OUT_OF_MEMORY"),
        (BeanstalkClient(SIZE), b"INSERTED 1\r\nDRAINING\r\n", "DRAINING"),
        (StreamClient(SIZE, False), b"-OOM no memory\r\n", "OOM"),
        (StreamClient(SIZE, False), b"$3\r\n1-1\r\n-OOM no memory\r\n$3\r\n1-2\r\n", "OOM"),
    ],
)
def test_an_error_is_not_an_added_job(client: LineClient, reply: bytes, said: str) -> None:
    with pytest.raises(LoadError, match=said):
        client.added.complete(reply, 3)


@pytest.mark.parametrize(
    ("client", "reply"),
    [(BeanstalkClient(SIZE), b"TIMED_OUT\r\n"), (StreamClient(SIZE, False), b"*-1\r\n")],
)
def test_nothing_is_not_a_taken_job(client: LineClient, reply: bytes) -> None:
    with pytest.raises(LoadError, match="answered"):
        client.taken.complete(reply, 1)


def test_an_answer_of_lines_is_complete_with_its_last_byte() -> None:
    shape = LinesReply(b"RESERVED ", 2)
    reply = b"RESERVED 1 3\r\nabc\r\nRESERVED 2 3\r\ndef\r\n"
    assert [n for n in range(1, len(reply) + 1) if shape.complete(reply[:n], 2)] == [len(reply)]
    with pytest.raises(LoadError):
        shape.complete(reply + b"RESERVED 3 3\r\nghi\r\n", 2)


def message(number: int, body: bytes) -> bytes:
    """How JetStream delivers a message."""
    subject = b"$JS.ACK.jobs.workers.1.%d.%d.1700000000000000000.0" % (number, number)
    return b"MSG jobs 1 %b %d\r\n%b\r\n" % (subject, len(body), body)


def stored(number: int) -> bytes:
    """How JetStream says that it has a message."""
    body = b'{"stream":"jobs", "seq":%d}' % number
    return b"MSG _INBOX.7 1 %d\r\n%b\r\n" % (len(body), body)


def test_messages_of_jetstream_are_acknowledged_with_the_next_batch() -> None:
    added = stored(9) + b"PING\r\n" + stored(10) + stored(11)
    taken = message(9, BODIES[0]) + message(10, BODIES[1]) + b"PING\r\n" + message(11, BODIES[2])
    found, times = exchanges(NatsClient(SIZE, files=True), added, taken)
    inbox = b"_INBOX.7"
    assert found[0].request == b"".join([publish(b"jobs", body, inbox) for body in BODIES])
    wish = b'{"batch":3,"expires":30000000000}'
    # A PING of the server gets its PONG with what is sent next.
    pull = publish(b"$JS.API.CONSUMER.MSG.NEXT.jobs.workers", wish, inbox)
    assert found[1].request == b"PONG\r\n" + pull
    acks = [
        publish(b"$JS.ACK.jobs.workers.1.%d.%d.1700000000000000000.0" % (n, n), b"+ACK")
        for n in (9, 10, 11)
    ]
    assert found[2].request == b"PONG\r\n" + b"".join(acks) + b"PING\r\n"
    assert len(times) == 1


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
