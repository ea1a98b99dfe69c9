"""No command, whatever its arguments and however many jobs there are, makes a turn long.

Counts the lines of Python that the node runs in each turn, which no other load on the machine
changes. Every command of the table has to be here, so that a new one cannot escape.
"""

from functools import cache

import pytest

from disque_trio.node.commands.table import build_table
from disque_trio.node.core import node as core_node
from disque_trio.protocol.keyrecord import ADDED
from disque_trio.respserver.slices import do_slice
from tests.support.lines import Words, lines_of, name_of
from tests.support.node_bench import Bench

if not core_node.__file__.endswith(".py"):
    pytest.skip("the lines of compiled code cannot be counted", allow_module_level=True)

JOBS = 10_000
QUEUES = 3_000
KEYS = 130_000
WORDS = 40_000
MOST = 120_000  # lines; compiled, a few ms
MANY = 1_000_000_000


def make_crowd() -> tuple[Bench, list[bytes]]:
    """A node with very many jobs and queues, and the ids of the jobs."""
    bench = Bench()
    for number in range(QUEUES):
        bench.node.queues.create(b"mail.%d" % number)
    for _ in range(JOBS):
        bench.node.command(bench.me, [b"ADDJOB", b"q", b"body", b"0", b"RETRY", b"600"], bench.now)
    for number in range(JOBS // 4):
        queue = b"keys" if number % 2 else b"keys.%d" % number
        bench.node.store.uniques.add(queue, b"%d" % number, b"", ADDED, True, bench.now + MANY)
    return bench, bench.replies(bench.me)  # type: ignore[return-value]


@cache
def shared() -> tuple[Bench, list[bytes]]:
    """The same, for what changes nothing, with keys in very many queues."""
    bench, ids = make_crowd()
    for number in range(KEYS):
        bench.node.store.uniques.add(b"k%d" % number, b"", b"", ADDED, True, bench.now + MANY)
    return bench, ids


def longest(bench: Bench, *requests: Words) -> int:
    """The number of lines of the longest turn while ``requests`` are served, one after the
    other."""
    node, client = bench.node, bench.client()
    most = 0
    for request in requests:
        most = max(most, lines_of(lambda request=request: bench.send(client, *request)))
        for _ in range(100_000):
            if node.batches.waiting:
                most = max(most, lines_of(lambda: do_slice(node, bench.now)))
            elif 0 < node.next_wake() <= bench.now:
                most = max(most, lines_of(lambda: node.tick(bench.now)))
            else:
                break
            bench.raw(client)
    bench.raw(client)
    bench.disconnect(client)
    return most


def stars(count: int) -> list[str]:
    return [f"*a{number}*" for number in range(count)]


# What changes nothing.
READS: list[Words] = [
    ("ACL", "LIST"),
    ("ACL", "DRYRUN", "default", "GETJOB", "FROM", *["q"] * WORDS),
    ("ACL", "CAT"),
    ("ACL", "LOG"),
    ("BINDINGS", "MATCH", "a" * 100),
    ("BINDINGS",),
    ("CLIENT", "LIST", "ID", *range(1, WORDS)),
    ("CLIENT", "KILL", *["TYPE", "master"] * (WORDS // 2)),
    ("CLUSTER", "NODES"),
    ("CLUSTER", "INFO"),
    ("COMMAND",),
    ("COMMAND", "INFO", *["getjob"] * WORDS),
    ("COMMAND", "DOCS", *["getjob"] * WORDS),
    ("COMMAND", "GETKEYS", "GETJOB", "FROM", *[f"q{number}" for number in range(WORDS)]),
    ("COMMAND", "GETKEYS", "GETJOB", "FROM", *[f"q{number}" for number in range(900)]),
    ("CONFIG", "GET", *["*a*"] * WORDS),
    ("CONFIG", "GET", "*" * 100_000),
    ("CONFIG", "SET", *["maxclients", "9"] * (WORDS // 2)),
    ("CRON", "LIST"),
    ("ECHO", "x" * 1_000_000),
    ("HELLO", 3, *["SETNAME", "x"] * (WORDS // 2)),
    ("INFO", "all"),
    ("JSCAN", "BUSYLOOP"),
    ("JSCAN", "BUSYLOOP", "REPLY", "all"),
    ("JSCAN", "BUSYLOOP", "REPLY", "counts"),
    ("JSCAN", "BUSYLOOP", "STATE", "acked", *["QUEUE", "x"] * 1_000),
    ("JSCAN", 0, "COUNT", MANY, "REPLY", "all"),
    ("JSCAN", "BUSYLOOP", "BODY", "x", "REPLY", "all"),
    ("JSCAN", "BUSYLOOP", "FEWCOPIES"),
    ("JSCAN", "BUSYLOOP", "FEWCOPIES", "REPLY", "counts"),
    ("JSCAN", "FIRST", 1_000, "STATE", "fresh", "REPLY", "all"),
    ("JSCAN", "FIRST", 1_000, "STATE", "delayed", "BODY", "x"),
    ("SCANJOBS", "BUSYLOOP"),
    ("LATENCY", "RESET", *["x"] * WORDS),
    ("MULTI", *["x"] * WORDS),
    ("DISCARD",),
    ("EXEC",),
    ("WATCH", *["x"] * WORDS),
    ("UNWATCH",),
    ("PING", "x" * 1_000_000),
    ("QGET",),
    ("QKEYS",),
    ("QKEYS", "keys", 0, "COUNT", MANY),
    ("QKEYS", "none", 0, "COUNT", MANY),
    ("QLEN", "q"),
    ("QOWNER", *["q"] * WORDS),
    ("QOWNER", *["q"] * 998),
    ("QPEEK", "q", MANY),
    ("QPEEK", "q", -MANY),
    ("QPEEK", "q", MANY, "MAXBODY", 1),
    ("QSCAN", "BUSYLOOP"),
    ("QSCAN", "BUSYLOOP", "MATCH", "*?a" * 1_300),
    ("QSCAN", 0, "COUNT", MANY, "MATCH", "*?l*"),
    ("SCANQUEUES", "BUSYLOOP"),
    ("QSTAT", "q"),
    ("QSTAT", "q", "FULL"),
    ("QTOP", "q", "BY", "client", "COUNT", 1_000),
    ("QTOP", "q", "BY", "group"),
    ("SELECT", 0),
    ("SLOWLOG", "GET", -1),
    ("TIME",),
    ("WORKER", "LIST"),
    ("AUTH", *["x"] * WORDS),
]
# What is given the ids of all jobs.
BY_IDS: list[Words] = [
    ("ACKJOB",),
    ("CANCEL",),
    ("COPYJOB", 0),
    ("DELJOB", "BCAST", "FORCE"),
    ("DEQUEUE",),
    ("ENQUEUE",),
    ("FASTACK",),
    ("NACK",),
    ("PROMOTE",),
    ("QUEUE",),
    ("REDRIVE", "q", "MATCH"),
    ("SHOW",),
    ("UPDATEJOB",),
    ("WAITJOB", 0),
    ("WORKING",),
]
WRITES: list[Words] = [
    ("ACL", "SETUSER", "u", *["~q"] * WORDS),
    ("ACL", "DELUSER", *["u"] * WORDS),
    ("ADDJOB", "q", "x", 0, *["RETRY", 10] * 1_000),
    ("ADDJOB", "q", "x", 0, "MAXLEN", 1),
    ("BIND", "a.#", "q"),
    ("UNBIND", "a.#", "q"),
    ("CONSUME", "q", "CREDIT", MANY),
    ("CREDIT", MANY),
    ("CRON", "SET", "n", "@every 1s", "q", "x", *["RETRY", 10] * 1_000),
    ("DEBUG", "FLUSHALL"),
    ("GETJOB", "NOHANG", "COUNT", MANY, "FROM", "q"),
    ("GETJOB", "NOHANG", "COUNT", MANY, "PATTERN", "FROM", "*"),
    ("GETJOB", "NOHANG", "PATTERN", "FROM", *stars(1_000)),
    ("GETJOB", "NOHANG", "FROM", *[f"x{number}" for number in range(1_000)]),
    ("GETJOBS", "NOHANG", "COUNT", MANY, "FROM", "q"),
    ("LOADJOB", "x" * 1_000_000),
    ("PAUSE", "q", *["all"] * 1_000),
    ("QDEL", "q"),
    ("QDELKEY", "keys", *range(1, 2_000, 2)),
    ("QMOVE", "q", "other"),
    ("QPURGE", "q"),
    ("QSET", "q", "MAXLEN", 1),
    ("QSET", "*", "DEAD", "dead"),
    ("REDRIVE", "q"),
    ("WORKER", "REPORT", *["queue", "x"] * 32),
    ("WORKER", "REPORT", *["x"] * WORDS),
    ("RESET",),
    ("QUIT",),
    ("MONITOR",),
]
# What they do is long on purpose, or not the node's: the process ends, or another one works.
EXEMPT = {"shutdown", "restart", "bgrewriteaof"}


def test_every_command_is_here() -> None:
    """A new one needs a line above, with the arguments that make it as long as it gets."""
    here = {str(request[0]).lower() for request in [*READS, *BY_IDS, *WRITES]}
    assert here | EXEMPT == {name.decode() for name in build_table()}


@pytest.mark.parametrize("request_", READS, ids=name_of)
@pytest.mark.slow
def test_a_look_makes_no_turn_long(request_: Words) -> None:
    bench, _ = shared()
    assert longest(bench, request_) < MOST


@pytest.mark.parametrize("request_", BY_IDS, ids=name_of)
@pytest.mark.slow
def test_very_many_ids_make_no_turn_long(request_: Words) -> None:
    bench, ids = make_crowd()
    assert longest(bench, (*request_, *ids)) < MOST
    if request_[0] == "WAITJOB":
        assert longest(bench, (*request_, *ids[:1_000])) < MOST


@pytest.mark.parametrize("request_", WRITES, ids=name_of)
@pytest.mark.slow
def test_a_change_makes_no_turn_long(request_: Words) -> None:
    bench, _ = make_crowd()
    bench.node.host.may_debug = lambda client: True  # type: ignore[method-assign]
    requests: list[Words] = [request_]
    if request_[0] in ("CONSUME", "CREDIT"):
        requests = [("HELLO", 3), ("CONSUME", "q", "CREDIT", 1), request_]
    assert longest(bench, *requests) < MOST


@pytest.mark.parametrize(
    "inner",
    [
        [("ADDJOB", "q", "x", 0)] * 10_000,
        [("QLEN", "q")] * 20_000,
        [("QPEEK", "q", 1_000)] * 20,
        [("JSCAN", "BUSYLOOP", "REPLY", "all")],
        [("GETJOB", "COUNT", MANY, "FROM", "q")],
    ],
    ids=lambda requests: f"{len(requests)} {name_of(requests[0])}",
)
@pytest.mark.slow
def test_a_group_makes_no_turn_long(inner: list[Words]) -> None:
    bench, _ = make_crowd()
    assert longest(bench, ("MULTI",), *inner, ("EXEC",)) < MOST


@pytest.mark.parametrize("delivered", [False, True])
@pytest.mark.slow
def test_a_group_of_very_many_ids_makes_no_turn_long(delivered: bool) -> None:
    bench, ids = make_crowd()
    if delivered:
        longest(bench, ("GETJOB", "COUNT", MANY, "FROM", "q"))
    assert longest(bench, ("MULTI",), ("ACKJOB", *ids), ("EXEC",)) < MOST


@pytest.mark.slow
def test_the_count_sees_what_is_long() -> None:
    bench, _ = shared()
    bench.node.batches.size = 100_000
    try:
        assert longest(bench, ("JSCAN", "BUSYLOOP")) > MOST
    finally:
        bench.node.batches.size = 100


@pytest.mark.slow
def test_waits_for_the_same_jobs_that_end_at_once_make_no_turn_long() -> None:
    bench, ids = make_crowd()
    clients = [bench.client() for _ in range(300)]
    for client in clients:
        bench.send(client, "WAITJOB", 0, *ids[:300])
    while 0 < bench.node.next_wake() <= bench.now:
        bench.node.tick(bench.now)
    assert longest(bench, ("ACKJOB", *ids[:300])) < MOST
    for client in clients:
        assert len(bench.replies(client)) == 1


@pytest.mark.slow
def test_the_patterns_of_others_make_no_turn_long() -> None:
    bench, ids = make_crowd()
    longest(bench, ("GETJOB", "NOHANG", "PATTERN", "FROM", *stars(1_000)), ("DEQUEUE", *ids))
    assert longest(bench, ("ENQUEUE", *ids)) < MOST
