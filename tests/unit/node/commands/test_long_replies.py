"""Commands that look at, or tell about, very many things: in slices, with others in between."""

import hiredis
import pytest

from disque_trio.node.commands import scan
from disque_trio.node.commands.jobs import MOST_TAKEN
from disque_trio.node.core.jobs.job import DEFAULT_RETRY
from disque_trio.respserver.batches import SLICE, UNITS_OF_ID
from disque_trio.respserver.client import Client
from disque_trio.respserver.slices import do_slice
from tests.support.node_bench import Bench

MANY = 700


@pytest.fixture
def bench() -> Bench:
    it = Bench()
    it.node.batches.size = 5
    return it


def many_jobs(bench: Bench, count: int = MANY) -> list[bytes]:
    return [bench.add() for _ in range(count)]


def slices(bench: Bench, client: Client) -> int:
    """Take turns until ``client`` has its reply; return how many."""
    turns = 0
    while client.in_slices:
        do_slice(bench.node, bench.now)
        bench.node.commit()
        turns += 1
    return turns


SCANS = [
    ("JSCAN", "BUSYLOOP"),
    ("JSCAN", "BUSYLOOP", "REPLY", "all"),
    ("JSCAN", "BUSYLOOP", "REPLY", "counts"),
    ("JSCAN", "0", "COUNT", MANY, "REPLY", "all"),
    ("JSCAN", "BUSYLOOP", "STATE", "acked"),
    ("QSCAN", "BUSYLOOP"),
    ("QSCAN", "BUSYLOOP", "MATCH", "*"),
    ("QPEEK", "q", MANY),
    ("QPEEK", "q", -MANY),
    ("QPEEK", "q", MANY, "MAXBODY", 1),
    ("GETJOB", "COUNT", MANY, "FROM", "q"),
    ("GETJOB", "COUNT", MANY, "PATTERN", "FROM", "*"),
]
LISTS = ["QGET", "CRON LIST", "BINDINGS", "BINDINGS MATCH t", "BINDINGS FULL"]


@pytest.mark.parametrize("request_", SCANS, ids=lambda words: " ".join(map(str, words)))
def test_a_turn_does_no_more_than_a_slice(bench: Bench, request_: tuple[str | int, ...]) -> None:
    """As many slices as the work takes at least; and the reply is that of one go."""
    many_jobs(bench)
    for number in range(MANY):
        bench.make_queue(f"q{number}")
    bench.get_all("nothing")
    bench.node.batches.size = 1_000_000
    peeked = None if request_[0] == "GETJOB" else bench(*request_)
    bench.node.batches.size = 5
    bench.send(bench.me, *request_)
    assert slices(bench, bench.me) >= MANY // (5 * UNITS_OF_ID)
    (reply,) = bench.replies(bench.me)
    if peeked is None:
        assert isinstance(reply, list)
        assert len(reply) == MANY
    else:
        assert reply == peeked


@pytest.mark.parametrize("request_", SCANS, ids=lambda words: " ".join(map(str, words)))
def test_in_a_group_the_reply_is_the_same(bench: Bench, request_: tuple[str | int, ...]) -> None:
    many_jobs(bench)
    expected = None if request_[0] == "GETJOB" else bench(*request_)
    assert bench("MULTI") == b"OK"
    assert bench(*request_) == b"QUEUED"
    replies = bench("EXEC")
    assert isinstance(replies, list)
    (reply,) = replies
    if expected is None:
        assert len(reply) == MANY
    else:
        assert reply == expected


@pytest.mark.parametrize("request_", LISTS)
def test_lists_of_what_all_nodes_share_come_in_slices(bench: Bench, request_: str) -> None:
    for number in range(MANY):
        bench("QSET", f"q{number}", "MAXLEN", 1)
        bench("CRON", "SET", f"n{number}", "@daily", "q", "body")
        bench("BIND", "t", f"q{number}")
    bench.send(bench.me, *request_.split())
    other = bench.client()
    assert bench.ask(other, "QDEL", "q5") == bench.ask(other, "CRON", "DEL", "n5") == 1
    assert bench.ask(other, "UNBIND", "t", "q5") == 1
    assert slices(bench, bench.me) >= MANY // (5 * UNITS_OF_ID)
    (reply,) = bench.replies(bench.me)
    assert isinstance(reply, list)
    assert len(reply) == MANY
    assert reply == sorted(reply, key=str)
    assert len(bench(*request_.split())) == MANY - 1  # type: ignore[arg-type]


def test_others_are_served_in_between_and_the_next_commands_wait(bench: Bench) -> None:
    ids = many_jobs(bench)
    other = bench.client()
    bench.send(bench.me, "ECHO", "before")
    bench.send(bench.me, "JSCAN", "BUSYLOOP")
    assert bench.me.blocked
    while bench.me.in_slices:
        do_slice(bench.node, bench.now)
        assert bench.ask(other, "PING") == b"PONG"
    bench.send(bench.me, "ECHO", "behind")
    before, reply, behind = bench.replies(bench.me)
    assert (before, behind) == (b"before", b"behind")
    assert isinstance(reply, list)
    assert sorted(reply[1]) == sorted(ids)


def test_what_fits_into_a_slice_is_answered_at_once(bench: Bench) -> None:
    ids = many_jobs(bench, 4)
    for request in (("JSCAN", "BUSYLOOP"), ("QSCAN",), ("QPEEK", "q", 9)):
        bench.send(bench.me, *request)
        assert not bench.me.in_slices
        assert len(bench.replies(bench.me)) == 1
    bench.send(bench.me, "GETJOB", "COUNT", 9, "FROM", "q")
    assert not bench.me.in_slices
    assert bench.ids(bench.replies(bench.me)[0]) == ids


def test_a_long_reply_leaves_while_it_is_made(bench: Bench) -> None:
    """So it need not be in memory as a whole."""
    ids = many_jobs(bench)
    bench.send(bench.me, "QPEEK", "q", MANY)
    reader = hiredis.Reader()
    longest = 0
    while bench.me.in_slices:
        do_slice(bench.node, bench.now)
        data = bench.raw(bench.me)
        longest = max(longest, len(data))
        assert reader.gets() is False
        reader.feed(data)
    reader.feed(bench.raw(bench.me))
    assert bench.ids(reader.gets()) == ids
    assert longest < 100 * MANY // 20


def test_jobs_that_stay_are_found_once_whatever_comes_and_goes(bench: Bench) -> None:
    ids = many_jobs(bench)
    bench.send(bench.me, "JSCAN", "BUSYLOOP")
    gone = set()
    other = bench.client()
    while bench.me.in_slices:
        do_slice(bench.node, bench.now)
        bench.ask(other, "ADDJOB", "q", "body", 0)
        id = ids[3 * len(gone)]
        gone.add(id)
        bench.ask(other, "DELJOB", id)
        bench.node.store.cron(bench.now)
    (reply,) = bench.replies(bench.me)
    assert isinstance(reply, list)
    found = reply[1]
    assert len(found) == len(set(found))
    assert set(found) >= set(ids) - gone


def test_a_job_that_ends_before_it_is_told_about_is_shown_as_acknowledged(bench: Bench) -> None:
    ids = many_jobs(bench)
    other = bench.client()
    bench.send(bench.me, "JSCAN", "BUSYLOOP", "REPLY", "all")
    while not (data := bench.raw(bench.me)):
        do_slice(bench.node, bench.now)
    ended = next(id for id in ids if id not in data)
    assert bench.ask(other, "ACKJOB", ended) == 1
    while bench.me.in_slices:
        do_slice(bench.node, bench.now)
    reader = hiredis.Reader()
    reader.feed(data + bench.raw(bench.me))
    _, jobs = reader.gets()
    states = {fields[1]: fields[5] for fields in jobs}
    assert sorted(states) == sorted(ids)
    assert [id for id in ids if states[id] != b"queued"] == [ended]
    assert states[ended] == b"acked"
    assert bench("PING") == b"PONG"


def test_a_reply_that_fails_halfway_is_the_last_one(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its client would take the next replies for the rest of it."""
    if not scan.__file__.endswith(".py"):
        pytest.skip("compiled code calls its own functions")
    many_jobs(bench)
    bench.send(bench.me, "JSCAN", "BUSYLOOP", "REPLY", "all")
    while not bench.raw(bench.me):
        do_slice(bench.node, bench.now)
    monkeypatch.setattr(scan, "describe", None)
    with pytest.raises(TypeError):
        do_slice(bench.node, bench.now)
    assert bench.me.close


@pytest.mark.parametrize("sign", [1, -1])
def test_jobs_that_stay_are_peeked_at_in_their_order_whatever_is_taken(
    bench: Bench, sign: int
) -> None:
    ids = many_jobs(bench, 2_000)
    urgent = [bench.add("q", "body", "PRIORITY", 3) for _ in range(600)]
    order = urgent + ids
    other = bench.client()
    bench.send(bench.me, "QPEEK", "q", 1_000_000 * sign)
    gone = set()
    while bench.me.in_slices:
        do_slice(bench.node, bench.now)
        for place in (0, 1_500, 1_999):
            id = ids[(place + 7 * len(gone)) % 2_000]
            if id not in gone:
                bench.ask(other, "DEQUEUE", id)
                gone.add(id)
        bench.ask(other, "GETJOB", "NOHANG", "FROM", "q")
    (reply,) = bench.replies(bench.me)
    found = bench.ids(reply)
    assert len(found) == len(set(found))
    taken = set(order) - {job.id for job in bench.node.queues.by_name[b"q"].first_to_last()}
    stayed = [id for id in order[::sign] if id not in taken]
    assert [id for id in found if id in set(stayed)] == stayed


def test_whoever_left_is_not_read_for(bench: Bench) -> None:
    many_jobs(bench)
    for request in (("JSCAN", "BUSYLOOP"), ("QPEEK", "q", MANY)):
        client = bench.client()
        bench.send(client, *request)
        assert client.in_slices
        bench.disconnect(client)
        client.close = True
        do_slice(bench.node, bench.now)
        assert not bench.node.batches.waiting
        assert bench.node.batches.left == 0


def test_jobs_are_not_taken_for_whoever_left(bench: Bench) -> None:
    many_jobs(bench)
    client = bench.client()
    bench.send(client, "GETJOB", "COUNT", MANY, "FROM", "q")
    bench.disconnect(client)
    client.close = True
    assert slices(bench, client) == 1
    assert bench.number_queued() == MANY - 5


def test_a_getjob_hands_out_nothing_when_the_file_cannot_be_written(bench: Bench) -> None:
    """The records of what was taken may be missing, so that it would be delivered again."""
    many_jobs(bench)
    bench.send(bench.me, "GETJOB", "COUNT", MANY, "FROM", "q")
    bench.node.set_trouble(False, "the disk is gone")
    do_slice(bench.node, bench.now)
    assert not bench.me.in_slices
    (reply,) = bench.replies(bench.me)
    assert str(reply).startswith("MISCONF")
    bench.node.set_trouble(False, "")
    assert bench.number_queued() == MANY - 5
    bench.advance(2 * DEFAULT_RETRY)
    assert bench.number_queued() == MANY


def test_a_getjob_takes_large_jobs_one_by_one_and_not_too_many() -> None:
    bench = Bench()
    body = "x" * (1 << 20)
    most = MOST_TAKEN >> 20
    for _ in range(most + 2):
        bench.add("q", body)
    bench.send(bench.me, "GETJOB", "COUNT", SLICE, "FROM", "q")
    assert bench.number_queued() == most + 1
    assert slices(bench, bench.me) == most - 1
    assert len(bench.ids(bench.replies(bench.me)[0])) == most
    assert len(bench.get_all()) == 2


def test_large_jobs_are_peeked_at_one_by_one() -> None:
    bench = Bench()
    for _ in range(9):
        bench.add("q", "x" * (1 << 20))
    bench.send(bench.me, "QPEEK", "q", 9)
    assert slices(bench, bench.me) >= 8
    assert len(bench.ids(bench.replies(bench.me)[0])) == 9


def test_reply_modes_hold(bench: Bench) -> None:
    many_jobs(bench)
    for request in (("JSCAN", "BUSYLOOP"), ("GETJOB", "COUNT", MANY, "FROM", "q")):
        bench.send(bench.me, "CLIENT", "REPLY", "SKIP")
        bench.send(bench.me, *request)
        slices(bench, bench.me)
        assert bench("PING") == b"PONG"


def test_large_jobs_are_pushed_a_few_at_a_time() -> None:
    bench = Bench()
    for _ in range(30):
        bench.add("q", "x" * 500_000)
    assert not isinstance(bench("HELLO", 3), hiredis.ReplyError)
    bench.send(bench.me, "CONSUME", "q", "CREDIT", 40)
    sizes = []
    for _ in range(100):
        sizes.append(len(bench.raw(bench.me)))
        bench.node.tick(bench.now)
        bench.node.after_command()
    assert max(sizes) < 4_000_000
    assert bench.number_queued() == 0
