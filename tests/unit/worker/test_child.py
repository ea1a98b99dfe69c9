"""How a worker process ends while its node is away, against a scripted node."""

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
import trio
from trio.testing import MockClock

from disque_trio.process.logs import Log
from disque_trio.respclient import delivery
from disque_trio.tasks import Disque, settling
from disque_trio.tasks.running import Runner
from disque_trio.worker import child
from disque_trio.worker.child import Child
from disque_trio.worker.link import MappedPage, SocketEnd
from disque_trio.worker.options import parse
from tests.support.fake_disque import JOB_ID, FakeNode, Value, bulk, fake_node
from tests.support.harness import HANG_SECONDS


class Said:
    """A log, which keeps the fields of warnings."""

    def __init__(self) -> None:
        self.warnings: list[dict[str, Any]] = []

    def warning(self, event: str, **fields: Any) -> None:
        self.warnings.append(fields)

    def notice(self, event: str, **fields: Any) -> None: ...

    verbose = notice


class Process:
    """A worker process that runs in this one.

    Attributes:
        parent: the other end of its link.
        ended: set when ``run`` has returned.
    """

    def __init__(self, node: FakeNode, *words: str) -> None:
        self.node = node
        self.said = Said()
        self.app = Disque(f"disque://{node.address}", queue="q")
        self.ended = trio.Event()
        ours, theirs = socket.socketpair()
        self.parent = SocketEnd(ours)
        self.link = SocketEnd(theirs)
        self.page = MappedPage.make()
        options = parse(["shop:app", "--concurrency", "2", *words])
        log = cast(Log, self.said)
        self.child = Child(self.app, self.link, self.page, options, place=0, first=True, log=log)
        node.answers |= {
            "CLIENT": b"+OK\r\n",
            "GETJOB": FakeNode.HANG,
            "QGET": b"*-1\r\n",
            "QSET": b"+OK\r\n",
            "QLEN": b":0\r\n",
            "WORKING": b":300\r\n",
            "CREDIT": b"+OK\r\n",
        }

    def push(self, *tasks: str) -> None:
        """Have the node push a job for each of these tasks, one at a time."""
        pushes = []
        for number, task in enumerate(tasks):
            id = JOB_ID.format(number).encode()
            headers: list[Value] = [b"task", task.encode(), b"content-type", b"application/json"]
            fields: list[Value] = [b"nacks", 0, b"additional-deliveries", 0, b"headers", headers]
            entry = bulk(b"q", id, b'{"args":[]}', *fields)
            pushes.append(b">10\r\n$3\r\njob\r\n" + entry.removeprefix(b"*9\r\n"))

        def one_more() -> bytes:
            return b"+OK\r\n" + (pushes.pop(0) if pushes else b"")

        self.node.answers |= {
            "CREDIT": lambda command: one_more(),
            "CONSUME": lambda command: b":0\r\n" if command[1] == b"STOP" else one_more(),
        }

    def acked(self) -> set[bytes]:
        """The ids of the jobs for which the node has seen an ACKJOB."""
        return {command[1] for command in self.node.seen if command[0] == b"ACKJOB"}

    async def run(self) -> None:
        await self.child.run()
        self.ended.set()


@asynccontextmanager
async def process(monkeypatch: pytest.MonkeyPatch, *words: str) -> AsyncIterator[Process]:
    """A process that may not end by ``leave``, which it needs only if something does not end."""

    def leave() -> None:
        raise AssertionError("something did not end")

    monkeypatch.setattr(child, "leave", leave)
    async with fake_node() as node:
        one = Process(node, *words)
        try:
            yield one
        finally:
            await one.parent.aclose()
            await one.link.aclose()
            one.page.close()
            one.app.close()


async def ended(one: Process) -> None:
    with trio.fail_after(HANG_SECONDS):
        await one.ended.wait()


async def test_a_stop_ends_although_the_node_took_no_outcome_and_says_whose(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with process(monkeypatch) as one, trio.open_nursery() as nursery:

        @one.app.task(name="work")
        async def work() -> None: ...

        one.push("work", "work")
        one.node.answers |= {"ACKJOB": FakeNode.DROP, "WORKING": FakeNode.DROP}
        nursery.start_soon(one.run)
        await one.node.wait_for(lambda: len(one.acked()) == 2)
        await one.node.stop()
        await one.parent.send("finish", within=0.1)
        await ended(one)
    ids = [JOB_ID.format(number) for number in range(2)]
    assert [(said["count"], sorted(said["jobs"])) for said in one.said.warnings] == [(2, ids)]


async def test_a_job_with_which_the_worker_cannot_cope_fails_with_a_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def fail(_: Runner, __: object) -> None:
        raise RuntimeError("out of order")

    monkeypatch.setattr(Runner, "run", fail)
    async with process(monkeypatch) as one, trio.open_nursery() as nursery:

        @one.app.task(name="work")
        async def work() -> None: ...

        one.push("work")
        one.node.answers |= {"NACK": b":1\r\n", "SHOW": b"*-1\r\n"}
        nursery.start_soon(one.run)
        await one.node.wait_for(lambda: any(command[0] == b"NACK" for command in one.node.seen))
        await one.parent.send("finish", within=HANG_SECONDS)
        await ended(one)
    [given_back] = [command for command in one.node.seen if command[0] == b"NACK"]
    assert given_back[given_back.index(b"REASON") + 1] == b"RuntimeError: out of order"


async def test_a_stop_waits_within_the_grace_for_a_node_to_take_the_outcome(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with process(monkeypatch) as one, trio.open_nursery() as nursery:

        @one.app.task(name="work")
        async def work() -> None: ...

        one.push("work")
        one.node.answers |= {"ACKJOB": FakeNode.DROP}
        nursery.start_soon(one.run)
        await one.node.wait_for(lambda: len(one.acked()) == 1)
        await one.node.stop()
        await one.parent.send("finish", within=HANG_SECONDS)
        one.node.answers |= {"ACKJOB": b":1\r\n"}
        await one.node.start(nursery)
        await ended(one)
        nursery.cancel_scope.cancel()
    assert one.said.warnings == []


async def test_a_stop_ends_although_a_cancelled_task_cannot_be_handed_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with process(monkeypatch) as one, trio.open_nursery() as nursery:
        begun = trio.Event()

        @one.app.task(name="forever")
        async def forever() -> None:
            begun.set()
            await trio.sleep_forever()

        one.push("forever")
        nursery.start_soon(one.run)
        with trio.fail_after(HANG_SECONDS):
            await begun.wait()
        await one.node.stop()
        await one.parent.send("hand back")
        await ended(one)
    assert [said["job"] for said in one.said.warnings] == [JOB_ID.format(0)]


@pytest.mark.parametrize("task", ["work", "forever"])
@pytest.mark.parametrize("grace", [30, 0.5])
async def test_a_stop_at_a_node_that_is_gone_ends_within_the_grace(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock, task: str, grace: float
) -> None:
    autojump_clock.autojump_threshold = 0.05  # s of real time, for what is on its way to the node
    async with process(monkeypatch) as one, trio.open_nursery() as nursery:
        begun = trio.Event()

        @one.app.task(name="forever")
        async def forever() -> None:
            begun.set()
            await trio.sleep_forever()

        @one.app.task(name="work")
        async def work() -> None: ...

        one.push(task)
        one.node.answers |= {"ACKJOB": FakeNode.DROP, "WORKING": FakeNode.DROP}
        nursery.start_soon(one.run)
        await one.node.wait_for(lambda: begun.is_set() or len(one.acked()) == 1)
        await one.node.stop()
        stopped = trio.current_time()
        await one.parent.send("finish", within=grace)
        await ended(one)
        assert trio.current_time() - stopped <= grace
    assert len(one.said.warnings) == 1  # which says what was not settled


@pytest.mark.parametrize("silent", ["QGET", "QSET", "HELLO"])
async def test_a_stop_ends_while_a_process_starts_and_the_node_does_not_answer(
    monkeypatch: pytest.MonkeyPatch, silent: str
) -> None:
    async with process(monkeypatch) as one, trio.open_nursery() as nursery:

        @one.app.task(name="work")
        async def work() -> None: ...

        one.node.answers[silent] = FakeNode.HANG
        nursery.start_soon(one.run)
        await one.node.wait_for(lambda: [silent.encode()] in [c[:1] for c in one.node.seen])
        await one.parent.send("hand back")
        await ended(one)


async def test_a_program_that_stops_its_own_worker_ends_and_says_what_was_not_settled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(settling, "PATIENCE", 0.01)
    monkeypatch.setattr(delivery, "_SETTLE_SECONDS", 0.05)
    async with process(monkeypatch) as one:

        @one.app.task(name="work")
        async def work() -> None: ...

        one.push("work", "work")
        one.node.answers |= {"ACKJOB": FakeNode.DROP, "WORKING": FakeNode.DROP}
        runner = Runner(one.app, log=one.said)
        with trio.fail_after(HANG_SECONDS):
            async with one.app.connect() as client, trio.open_nursery() as nursery:
                nursery.start_soon(
                    lambda: client.work(runner.run, "q", concurrency=2, withheaders=True)
                )
                await one.node.wait_for(lambda: len(one.acked()) == 2)
                await one.node.stop()
                nursery.cancel_scope.cancel()
    ids = [JOB_ID.format(number) for number in range(2)]
    assert [(said["count"], sorted(said["ids"])) for said in one.said.warnings] == [(2, ids)]
    assert one.node.count("NACK") == 0


async def test_the_first_process_says_what_the_worker_takes_and_what_it_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with process(monkeypatch, "--queues", "q:2,m*:1") as one, trio.open_nursery() as nursery:
        for queue in ("q", "mail", "sms"):
            one.app.task(name=f"task of {queue}", queue=queue)(len)
        nursery.start_soon(one.run)
        with trio.fail_after(HANG_SECONDS):
            message = await one.parent.receive()
        assert message is not None
        assert message["kind"] == "app"
        assert message["nodes"] == [one.node.address]
        assert message["queues"] == ["q:2", "m*:1"]
        assert message["not_taken"] == ["sms"]
        assert message["tasks"] == ["task of q", "task of mail", "task of sms"]
        await one.parent.send("finish", within=0)
        await ended(one)
