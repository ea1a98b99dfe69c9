"""The dialects: what they send, and which replies they count as work."""

from itertools import islice

import pytest

from tools.bench.dialects import (
    Beanstalk,
    ConstantReply,
    Dialect,
    Disque,
    LinesReply,
    RedisList,
    RedisStream,
    copied,
    encode,
    timed,
)
from tools.bench.load import Exchange, LoadError
from tools.bench.scripts import ack_batches, add_batches, bodies, consume, cycle, take

SIZE = 20
BODY = b"0" * 12 + b"x" * 8


def disque_id(number: int) -> bytes:
    # Ends like the beginning of the reply with another ID, as one in 4096 random IDs does.
    return b"D-0123abcd-%022d+D-05a1" % number


def disque_job(number: int) -> bytes:
    return b"*1\r\n*3\r\n$5\r\nbench\r\n$40\r\n%b\r\n$20\r\n%b\r\n" % (disque_id(number), BODY)


def test_a_command_is_encoded_as_an_array_of_bulk_strings() -> None:
    assert encode(b"LLEN", b"q") == b"*2\r\n$4\r\nLLEN\r\n$1\r\nq\r\n"


def test_disque_adds_takes_and_acknowledges() -> None:
    dialect = Disque(SIZE)
    assert dialect.add(BODY) == encode(b"ADDJOB", b"bench", BODY, b"0")
    assert dialect.take(0) == encode(b"GETJOB", b"NOHANG", b"FROM", b"bench")
    assert dialect.ack(0, b"id") == encode(b"ACKJOB", b"id")


def test_redis_keeps_the_jobs_of_each_worker_in_a_list_of_its_own() -> None:
    dialect = RedisList(SIZE)
    assert dialect.add(b"body") == encode(b"LPUSH", b"bench", b"body")
    assert dialect.take(7) == encode(b"RPOPLPUSH", b"bench", b"bench:in-hand:7")
    assert dialect.ack(7, b"body") == encode(b"LREM", b"bench:in-hand:7", b"-1", b"body")


@pytest.mark.parametrize(
    ("dialect", "replies", "handles"),
    [
        (Disque(SIZE), [disque_job(1), disque_job(2)], [disque_id(1), disque_id(2)]),
        (RedisList(SIZE), [b"$20\r\n%b\r\n" % BODY] * 2, [BODY] * 2),
    ],
)
def test_the_replies_to_takes_say_what_to_acknowledge(
    dialect: Dialect, replies: list[bytes], handles: list[bytes]
) -> None:
    joined = b"".join(replies)
    assert dialect.taken.complete(joined, 2)
    assert dialect.handles(joined) == handles


def test_ids_that_look_like_replies_are_counted_once() -> None:
    replies = b"".join(b"+%b\r\n" % disque_id(number) for number in range(3))
    assert Disque(SIZE).added.complete(replies, 3)


def test_any_beginning_of_good_replies_is_incomplete() -> None:
    dialect = Disque(SIZE)
    replies = disque_job(1) * 2
    for length in range(1, len(replies)):
        assert not dialect.taken.complete(replies[:length], 2)


@pytest.mark.parametrize(
    "reply",
    [
        b"-OOM command not allowed\r\n",
        disque_job(1) + b"-ERR no\r\n",
        b"*-1\r\n" + disque_job(1),
        disque_job(1) + b"*-1\r\n",
        b"*0\r\n",
        disque_job(1) * 3,
        disque_job(1)[:-2] + b"-ERR no" + disque_job(1)[5:],
    ],
)
def test_a_take_that_got_no_job_is_an_error(reply: bytes) -> None:
    with pytest.raises(LoadError, match="the server answered"):
        Disque(SIZE).taken.complete(reply, 2)


@pytest.mark.parametrize("reply", [b"$-1\r\n", b"$19\r\n" + b"x" * 19 + b"\r\n", b"-ERR no\r\n"])
def test_a_redis_take_that_got_no_job_is_an_error(reply: bytes) -> None:
    with pytest.raises(LoadError, match="the server answered"):
        RedisList(SIZE).taken.complete(reply, 1)


@pytest.mark.parametrize("reply", [b":0\r\n", b":1\r\n:0\r\n", b":1\r\n-ERR no\r\n", b":12\r\n"])
def test_an_ack_that_ended_no_job_is_an_error(reply: bytes) -> None:
    with pytest.raises(LoadError, match="the server answered"):
        Disque(SIZE).acked.complete(reply, 2)


def test_integers_of_any_length_are_counted() -> None:
    shape = LinesReply(b":", 1)
    assert not shape.complete(b":9\r\n:10\r", 2)
    assert not shape.complete(b":9\r\n", 2)
    assert shape.complete(b":9\r\n:10\r\n", 2)


@pytest.mark.parametrize("reply", [b"-OOM no\r\n", b":9\r\n-OOM no\r\n", b":1\r\n:2\r\n:3\r\n"])
def test_integers_among_other_replies_are_an_error(reply: bytes) -> None:
    with pytest.raises(LoadError, match="the server answered"):
        LinesReply(b":", 1).complete(reply, 2)


def test_the_error_names_the_servers_own_words() -> None:
    with pytest.raises(LoadError, match="-OOM no memory"):
        ConstantReply(b":1\r\n").complete(b":1\r\n-OOM no memory\r\n:1\r\n", 3)


def test_bodies_have_the_size_asked_for_and_differ() -> None:
    some = list(islice(bodies(SIZE), 1000))
    assert {len(body) for body in some} == {SIZE}
    assert len(set(some)) == 1000


def test_a_body_too_small_to_be_distinct_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 12"):
        next(bodies(11))


def test_batches_hold_as_many_commands_as_the_pipeline_is_deep() -> None:
    dialect = RedisList(SIZE)
    batches = add_batches(dialect, bodies(SIZE), 10, 4)
    assert [batch.commands for batch in batches] == [4, 4, 2]
    requests = b"".join(batch.request for batch in batches)
    assert requests == b"".join(map(dialect.add, islice(bodies(SIZE), 10)))
    acks = ack_batches(dialect, 3, [b"a", b"b", b"c"], 2)
    assert [batch.commands for batch in acks] == [2, 1]
    assert acks[1].request == dialect.ack(3, b"c")


def test_takes_go_on_while_there_are_counts_and_keep_the_replies() -> None:
    dialect = Disque(SIZE)
    replies: list[bytes] = []
    script = take(dialect, 0, [2, 1], replies)
    assert next(script).request == dialect.take(0) * 2
    assert script.send(b"first").commands == 1
    with pytest.raises(StopIteration):
        script.send(b"second")
    assert replies == [b"first", b"second"]


def test_a_cycle_acknowledges_what_it_was_given() -> None:
    dialect = Disque(SIZE)
    adds = add_batches(dialect, bodies(SIZE), 2, 2)
    script = cycle(dialect, 0, adds)
    assert next(script) == adds[0]
    assert script.send(b"").request == dialect.take(0) * 2
    acks = script.send(disque_job(5) + disque_job(6))
    assert acks.request == dialect.ack(0, disque_id(5)) + dialect.ack(0, disque_id(6))
    with pytest.raises(StopIteration):
        script.send(b":1\r\n:1\r\n")


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_job_is_added_with_its_copies_and_never_queued_again_meanwhile(
    asynchronous: bool,
) -> None:
    words = copied(SIZE, b"q", 3, asynchronous).add(BODY).split(b"\r\n")[2::2]
    options = [b"REPLICATE", b"3", b"RETRY", b"86400", b"TTL", b"604800"]
    assert words == [b"ADDJOB", b"q", BODY, b"20000", *options, *[b"ASYNC"] * asynchronous]


def test_timed_jobs_are_delivered_once_at_most() -> None:
    words = timed(SIZE, b"TTL", b"15").add(BODY).split(b"\r\n")[2::2]
    assert words == [b"ADDJOB", b"bench", BODY, b"0", b"RETRY", b"0", b"TTL", b"15"]


def test_a_consumer_takes_and_ends_what_others_added() -> None:
    dialect = copied(SIZE, b"bench", 3, False)
    script = consume(dialect, 0, [2])
    first = next(script)
    assert first == Exchange(dialect.take(0) * 2, dialect.taken, 2)
    reply = disque_job(1) * 2
    assert first.shape.complete(reply, 2)
    second = script.send(reply)
    assert second == Exchange(dialect.ack(0, disque_id(1)) * 2, dialect.acked, 2)
    with pytest.raises(StopIteration):
        script.send(b":1\r\n:1\r\n")


def entry(number: int) -> bytes:
    """Return the reply of XREADGROUP with one entry of the stream."""
    name = b"1700000000000-%d" % number
    parts = (b"$5\r\nbench\r\n*1\r\n*2\r\n", b"$%d\r\n%b\r\n" % (len(name), name))
    return b"*1\r\n*2\r\n%b%b*2\r\n$1\r\nb\r\n$20\r\n%b\r\n" % (*parts, BODY)


@pytest.mark.parametrize("kept", [False, True])
def test_an_entry_of_a_stream_is_acknowledged_and_then_deleted_unless_it_is_kept(
    kept: bool,
) -> None:
    dialect = RedisStream(SIZE, kept)
    script = cycle(dialect, 7, add_batches(dialect, bodies(SIZE), 3, 3))
    adding = next(script)
    added = b"$15\r\n1700000000000-9\r\n$16\r\n1700000000000-10\r\n$16\r\n1700000000000-11\r\n"
    assert adding.shape.complete(added, 3)
    taking = script.send(added)
    words = (b"XREADGROUP", b"GROUP", b"workers", b"w7", b"COUNT", b"1", b"STREAMS", b"bench", b">")
    assert taking.request == encode(*words) * 3
    taken = b"".join(map(entry, (9, 10, 11)))
    assert taking.shape.complete(taken, 3)
    ending = script.send(taken)
    names = [b"1700000000000-%d" % number for number in (9, 10, 11)]
    ends = [(encode(b"XACK", b"bench", b"workers", name)) for name in names]
    if not kept:
        ends = [
            end + encode(b"XDEL", b"bench", name) for end, name in zip(ends, names, strict=True)
        ]
    assert ending.request == b"".join(ends)
    assert ending.shape.complete(b":1\r\n" * ending.commands, ending.commands)
    assert ending.commands == (3 if kept else 6)


def test_a_beanstalkd_job_is_put_reserved_and_deleted() -> None:
    dialect = Beanstalk(SIZE)
    times: list[float] = []
    script = cycle(dialect, 7, add_batches(dialect, bodies(SIZE), 3, 3), times)
    some = list(islice(bodies(SIZE), 3))
    adding = next(script)
    assert adding.request == b"".join([b"put 0 0 120 20\r\n%b\r\n" % body for body in some])
    assert adding.shape.complete(b"INSERTED 9\r\nINSERTED 10\r\nINSERTED 11\r\n", 3)
    taking = script.send(b"")
    assert taking.request == b"reserve-with-timeout 0\r\n" * 3
    taken = b"".join([b"RESERVED %d 20\r\n%b\r\n" % (n, x) for n, x in enumerate(some, 9)])
    assert taking.shape.complete(taken, 3)
    assert script.send(taken).request == b"delete 9\r\ndelete 10\r\ndelete 11\r\n"
    with pytest.raises(StopIteration):
        script.send(b"DELETED\r\n" * 3)
    assert len(times) == 1


@pytest.mark.parametrize(
    ("dialect", "reply", "said"),
    [
        (Beanstalk(SIZE), b"OUT_OF_MEMORY\r\n", "OUT_OF_MEMORY"),
        (Beanstalk(SIZE), b"INSERTED 1\r\nDRAINING\r\n", "DRAINING"),
        (RedisStream(SIZE), b"-OOM no memory\r\n", "OOM"),
        (RedisStream(SIZE), b"$3\r\n1-1\r\n-OOM no memory\r\n$3\r\n1-2\r\n", "OOM"),
    ],
)
def test_an_error_is_not_an_added_job(dialect: Dialect, reply: bytes, said: str) -> None:
    with pytest.raises(LoadError, match=said):
        dialect.added.complete(reply, 3)


@pytest.mark.parametrize(
    ("dialect", "reply"),
    [(Beanstalk(SIZE), b"TIMED_OUT\r\n"), (RedisStream(SIZE), b"*-1\r\n")],
)
def test_nothing_is_not_a_taken_job(dialect: Dialect, reply: bytes) -> None:
    with pytest.raises(LoadError, match="answered"):
        dialect.taken.complete(reply, 1)


def test_an_answer_of_lines_is_complete_with_its_last_byte() -> None:
    shape = LinesReply(b"RESERVED ", 2)
    reply = b"RESERVED 1 3\r\nabc\r\nRESERVED 2 3\r\ndef\r\n"
    assert [n for n in range(1, len(reply) + 1) if shape.complete(reply[:n], 2)] == [len(reply)]
    with pytest.raises(LoadError):
        shape.complete(reply + b"RESERVED 3 3\r\nghi\r\n", 2)
