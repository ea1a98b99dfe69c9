"""What a task sends to its nodes, and when."""

import signal
import sys
from collections.abc import Callable
from typing import Any

import hiredis
import pytest

from disque_spark.client import RefusedError
from disque_spark.processing.heart import Heart
from disque_spark.processing.job import Failed, Job
from disque_spark.processing.task import Summary, Task, WorkOptions, job_of
from disque_trio.respclient.login import Login
from tests.support.scripted_node import ScriptedNode


def options(node: ScriptedNode, function: Callable[[Any], object], **changes: Any) -> WorkOptions:
    wanted = {
        "frames": False,
        "queues": ("q",),
        "results": "r",
        "add": ("FOR", 60),
        "size": 100,
        "wait": 0.0,
        "until_empty": True,
        "seconds": None,
        "delay": 7.0,
        "attempts": None,
        "timeout": 10.0,
        "failover": 0.0,
    } | changes
    wanted.setdefault("nodes", (node.address,))
    return WorkOptions(function=function, login=Login(), **wanted)


class Queue:
    """Answers like a node that has these jobs."""

    def __init__(self, *jobs: bytes, refuse: dict[bytes, bytes] | None = None) -> None:
        self.jobs = list(jobs)
        self.refuse = refuse or {}

    def __call__(self, request: list[bytes]) -> bytes:
        if request[0] == b"GETJOB":
            count = int(request[request.index(b"COUNT") + 1])
            given, self.jobs = self.jobs[:count], self.jobs[count:]
            one = b"*9\r\n$1\r\nq\r\n$3\r\nid%b\r\n$1\r\n%b\r\n$5\r\nnacks\r\n:2\r\n"
            one += b"$21\r\nadditional-deliveries\r\n:1\r\n$7\r\nheaders\r\n*2\r\n+k\r\n+v\r\n"
            return b"*%d\r\n" % len(given) + b"".join(one % (job, job) for job in given)
        for word in request:
            if word in self.refuse:
                return self.refuse[word]
        return b"+id\r\n" if request[0] == b"ADDJOB" else b":1\r\n"


def said(node: ScriptedNode, *names: bytes) -> list[list[bytes]]:
    return [request for request in node.requests if request[0] in names]


def test_the_result_comes_first_then_the_acknowledge() -> None:
    seen: list[Job] = []
    with ScriptedNode(Queue(b"1", b"2")) as node:
        settled = Task(options(node, lambda job: seen.append(job) or job.body), 0).take()
    assert settled == Summary(done=2, results=2)
    assert seen[0] == Job("id1", "q", b"1", 2, 1, (("k", b"v"),))
    *results, acknowledge = said(node, b"ADDJOB", b"ACKJOB")
    how = [b"5000", b"HEADERS", b"1", b"job", b"id1", b"UNIQUE", b"id1", b"FOR", b"60"]
    assert results[0] == [b"ADDJOB", b"r", b"1", *how]
    assert acknowledge == [b"ACKJOB", b"id1", b"id2"]


def test_a_failed_job_is_handed_back_with_its_reason() -> None:
    def function(job: Job) -> object:
        if job.body == b"2":
            raise Failed("later", delay=0.5)
        return 1 / 0

    with ScriptedNode(Queue(b"1", b"2")) as node:
        assert Task(options(node, function), 0).take() == Summary(failed=2)
    reason = b"ZeroDivisionError: division by zero"
    assert said(node, b"NACK", b"ACKJOB") == [
        [b"NACK", b"id1", b"DELAY", b"7.000", b"REASON", reason],
        [b"NACK", b"id2", b"DELAY", b"0.500", b"REASON", b"later"],
    ]


def test_after_its_attempts_a_job_is_a_dead_letter_if_there_are_any() -> None:
    refuse = {b"id2": b"-NODEAD no\r\n"}

    def function(job: Job) -> object:
        raise Failed("no")

    with (
        ScriptedNode(Queue(b"1", b"2", refuse=refuse)) as node,
        pytest.raises(RefusedError, match="NODEAD"),  # the script refuses it in any case
    ):
        Task(options(node, function, attempts=4, delay=None), 0).take()
    assert said(node, b"NACK") == [
        [b"NACK", b"id1", b"DEAD", b"REASON", b"no"],
        [b"NACK", b"id2", b"DEAD", b"REASON", b"no"],
        [b"NACK", b"id2", b"REASON", b"no"],
    ]


def test_a_job_whose_result_is_refused_is_not_acknowledged() -> None:
    with ScriptedNode(Queue(b"1", b"2", refuse={b"2": b"-PAUSED it is\r\n"})) as node:
        settled = Task(options(node, lambda job: job.body), 0).take()
    assert settled == Summary(done=1, failed=1, results=1)
    assert said(node, b"ACKJOB") == [[b"ACKJOB", b"id1"]]
    assert said(node, b"NACK")[0][-1] == b"result: PAUSED it is"


def test_nodes_that_know_no_keys_are_an_error() -> None:
    with (
        ScriptedNode(Queue(b"1", refuse={b"UNIQUE": b"-NOEXT no\r\n"})) as node,
        pytest.raises(RefusedError, match="NOEXT"),
    ):
        Task(options(node, lambda job: job.body), 0).take()
    assert not said(node, b"ACKJOB")


def test_when_the_time_is_over_the_rest_goes_back() -> None:
    now = 0.0

    def function(job: Job) -> object:
        nonlocal now
        now += 3
        return None

    with ScriptedNode(Queue(b"1", b"2", b"3")) as node:
        task = Task(options(node, function, seconds=5), 0, clock=lambda: now)
        assert task.take() == Summary(done=2)
    assert said(node, b"ENQUEUE") == [[b"ENQUEUE", b"id3"]]


def test_without_an_end_it_waits_for_jobs_until_its_time_is_over() -> None:
    now = 0.0
    queue = Queue()

    def answer(request: list[bytes]) -> bytes:
        nonlocal now
        if request[0] == b"GETJOB":
            now += 1
            if now == 20:
                queue.jobs = [b"1"]
        return queue(request)

    with ScriptedNode(answer) as node:
        task = Task(
            options(node, lambda job: None, until_empty=False, seconds=30, wait=2),
            0,
            clock=lambda: now,
        )
        assert task.take() == Summary(done=1)
    assert now == 30


def test_a_slow_function_has_fewer_jobs_in_hand() -> None:
    now = 0.0
    jobs = [bytes([n]) for n in range(34, 124)]

    def run(seconds: float, **changes: Any) -> list[int]:
        def function(job: object) -> object:
            nonlocal now
            now += seconds
            return None

        with ScriptedNode(Queue(*jobs)) as node:
            Task(options(node, function, **changes), 0, clock=lambda: now).take()
        return [int(r[r.index(b"COUNT") + 1]) for r in said(node, b"GETJOB")]

    assert run(0.5)[:3] == [16, 4, 4]
    assert run(0.001, size=90)[:2] == [16, 80]
    assert run(10, size=50, frames=True)[:2] == [50, 50]


def test_beats_go_by_the_retry_time_and_tell_of_jobs_that_ended() -> None:
    now = 0.0
    heart = Heart(["127.0.0.1:1"], None, 1, clock=lambda: now)
    heart.hold(["a", "b", "c"])
    assert heart.due() == []
    now = 1
    assert heart.due() == ["a", "b", "c"]
    gone = hiredis.ReplyError("CANCELLED it was")
    heart.learn(["a", "b", "c"], [8, gone, hiredis.ReplyError("NOJOB no")])
    assert heart.ended == {"b"}
    assert heart.due() == []
    now = 3  # a quarter of the retry time later
    assert heart.due() == ["a"]
    heart.release(["b"])
    assert heart.ended == set()


def test_jobs_of_c_disque_have_no_headers() -> None:
    assert job_of([b"q", b"i", b"x", b"nacks", 1, b"additional-deliveries", 0]).headers == ()


def test_a_job_is_handed_back_at_the_node_that_holds_it() -> None:
    with (
        ScriptedNode(Queue(b"1", refuse={b"NACK": b":0\r\n"})) as one,
        ScriptedNode(Queue()) as other,
    ):
        wanted = options(one, lambda job: 1 / 0, nodes=(one.address, other.address))
        assert Task(wanted, 0).take() == Summary(failed=1)
    assert [len(said(node, b"NACK")) for node in (one, other)] == [1, 1]


def test_a_call_that_takes_too_long_has_failed() -> None:
    def function(job: Job) -> object:
        while job.body == b"1":  # it hangs
            pass
        return job.body

    before = signal.getsignal(signal.SIGALRM)
    with ScriptedNode(Queue(b"1", b"2")) as node:
        settled = Task(options(node, function, limit=0.05), 0).take()
    assert settled == Summary(done=1, failed=1, results=1)
    assert said(node, b"NACK")[0][-1] == b"TimeoutError: it took longer than 0.05 s"
    assert signal.getsignal(signal.SIGALRM) == before


@pytest.mark.parametrize("frames", [False, True])
def test_a_function_that_wants_to_end_the_process_fails_its_job(frames: bool) -> None:
    def function(job: object) -> object:
        sys.exit("enough")

    with ScriptedNode(Queue(b"1", b"2")) as node:
        assert Task(options(node, function, frames=frames), 0).take() == Summary(failed=2)
    assert said(node, b"NACK")[1][-1] == b"SystemExit: enough"


def test_while_the_queue_is_paused_there_is_nothing_to_do() -> None:
    with ScriptedNode(lambda request: b"*-1\r\n") as node:
        assert Task(options(node, lambda job: None), 0).take() == Summary()


def test_a_missing_right_ends_the_task() -> None:
    with (
        ScriptedNode(Queue(b"1", refuse={b"ADDJOB": b"-NOPERM not r\r\n"})) as node,
        pytest.raises(RefusedError, match="NOPERM"),
    ):
        Task(options(node, lambda job: job.body), 0).take()
    assert said(node, b"ACKJOB", b"NACK") == []
