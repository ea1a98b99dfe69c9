"""Tasks on a real node: adding them from anywhere, chains and groups, and what nodes keep."""

import asyncio
import importlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
import trio

from disque_trio.client import HeldJob, ReplyError
from disque_trio.tasks import Disque, Handle, Reject, ResultGone, TaskFailed
from disque_trio.tasks.running import Runner
from tests.support import ROOT
from tests.support.harness import HANG_SECONDS, LiveNode, wait_until
from tests.support.task_worker import working, working_thread


def url(node: LiveNode) -> str:
    return f"disque://{node.host}:{node.port}"


@pytest.fixture
def app(node: LiveNode) -> Iterator[Disque]:
    with Disque(url(node), name="shop") as app:
        yield app


def test_threads_and_loops_add_tasks_and_get_their_results(app: Disque) -> None:
    @app.task
    def double(n: int) -> int:
        return 2 * n

    @app.task
    async def quadruple(n: int) -> int:
        return await double.then(double.bind()).add(n).result(timeout=HANG_SECONDS)

    async def main() -> None:
        handle = await quadruple.add(1)
        assert await handle.result(timeout=HANG_SECONDS) == 4
        assert await handle.state() == "done"
        handles = await double.map(range(100))
        assert await handles.results(timeout=HANG_SECONDS) == list(range(0, 200, 2))
        with pytest.raises(TimeoutError):
            await double.options(queue="nobody").add(1).result(timeout=0.01)

    handle = double.add(4)
    assert handle.get_state() == "pending"
    with working_thread(app):
        assert app.handle(handle.id).get(timeout=HANG_SECONDS) == 8
        trio.run(main)  # with the worker's client
        asyncio.run(main())
    waiting = double.add(5)
    trio.run(waiting.state)  # with one in a thread
    assert asyncio.run(waiting.state()) == "pending"
    many = [threading.Thread(target=double.add, args=(n,)) for n in range(10)]
    for thread in many:
        thread.start()
    for thread in many:
        thread.join()
    with working_thread(app) as outcomes:
        wait_until(lambda: len(outcomes) == 11)
    assert {outcome.kind for outcome in outcomes} == {"done"}


def test_a_result_that_is_not_there_says_why(app: Disque, node: LiveNode) -> None:
    release = threading.Event()

    @app.task(queue="mail", name="send", retries=1, backoff=(60, 60))
    def send(fails: bool) -> None:
        if fails:
            raise ValueError("no such address")
        release.wait(HANG_SECONDS)

    def why(handle: Handle[None]) -> str:
        with pytest.raises(TimeoutError) as caught:
            handle.get(timeout=0.01)
        return str(caught.value).partition(" in time: ")[2]

    first = send.add(True)
    assert why(first) == "1 job waits in mail; no worker has asked for it"
    node.ask("PAUSE", "mail", "out")
    assert why(first) == "1 job waits in mail, which is paused"
    node.ask("PAUSE", "mail", "none")
    with working_thread(app) as outcomes:
        wait_until(lambda: len(outcomes) == 1)
        wait_until(
            lambda: why(first).startswith("attempts that failed: 1, the last with ValueError:")
        )
        second = send.add(False)
        try:
            wait_until(lambda: why(second) == "a worker has it")
            assert why(send.add_in(60, False)) == "it is delayed"
        finally:
            release.set()
        second.get(timeout=HANG_SECONDS)
    third = send.add(False)
    assert why(third) == "1 job waits in mail; no worker waits for one now"


def test_a_failed_task_is_a_dead_letter_whose_reason_the_caller_gets(
    app: Disque, node: LiveNode
) -> None:
    @app.task(queue="mail", retries=1, backoff=(0.01, 0.02))
    def send(to: str) -> None:
        raise ValueError(f"no such address: {to}")

    @app.task(queue="mail")
    async def never() -> None:
        raise Reject("not this one")

    with working_thread(app) as outcomes:
        with pytest.raises(TaskFailed) as failure:
            send.add("bob").get(timeout=HANG_SECONDS)
        assert failure.value.type_name == "ValueError"
        assert failure.value.text == "no such address: bob"
        handle = never.add()
        with pytest.raises(TaskFailed, match="Reject: not this one"):
            handle.get(timeout=HANG_SECONDS)
        assert handle.get_state() == "failed"
        wait_until(lambda: len(outcomes) >= 3)  # the last reply may come to the worker later
        assert [outcome.kind for outcome in outcomes] == ["retried", "dead", "dead"]
    assert node.ask("QLEN", "mail.dead") == 2


def test_a_group_on_a_node_continues_when_its_members_have_ended(app: Disque) -> None:
    @app.task(queue="a", retries=1, backoff=(0.01, 0.02))
    def part(n: int) -> int:
        if n < 0:
            raise ValueError("negative")
        return n

    @app.task(queue="b")
    async def total(values: list[int], unit: str) -> str:
        return f"{sum(values)} {unit}"

    with working_thread(app):
        members = [part.bind(n) for n in range(30)]
        members.append(part.bind(1000).then(part.bind()))
        handle = app.group(members, total.bind("kg"))
        assert handle.get(timeout=HANG_SECONDS) == "1435 kg"
        failing = app.group([part.bind(1), part.bind(-1)], total.bind("kg"))
        with pytest.raises(TaskFailed, match="1 of 2 failed, number 2: ValueError: negative"):
            failing.get(timeout=HANG_SECONDS)


def test_a_group_continues_when_a_failed_member_was_requeued(app: Disque, node: LiveNode) -> None:
    repaired = threading.Event()

    @app.task(queue="a", retries=0)
    def part(n: int) -> int:
        if n == 2 and not repaired.is_set():
            raise ValueError("two")
        return n

    @app.task(queue="a")
    def total(values: list[int]) -> int:
        return sum(values)

    done: list[int] = []

    @app.task(queue="a")
    def note(n: int) -> None:
        done.append(n)

    with working_thread(app):
        group = app.group([part.bind(n) for n in range(4)], total.bind().then(note.bind()))
        with pytest.raises(TaskFailed, match="number 3: ValueError: two"):
            group.get(timeout=HANG_SECONDS)
        assert node.ask("QLEN", "a.dead") == 2
        repaired.set()
        assert node.ask("REDRIVE", "a.dead") == 2
        wait_until(lambda: done)
    assert done == [6]


def test_asyncio_tasks_run_in_a_trio_worker(node: LiveNode) -> None:
    with Disque(url(node), backend="asyncio") as app:

        @app.task
        async def double(n: int) -> int:
            await asyncio.sleep(0)
            return 2 * n

        @app.task
        async def sum_of_doubles(n: int) -> int:
            handles = [await double.add(number) for number in range(n)]
            return sum(await asyncio.gather(*[handle.result() for handle in handles]))

        with working_thread(app):
            assert sum_of_doubles.add(20).get(timeout=HANG_SECONDS) == 380


def test_an_asyncio_program_adds_and_runs_tasks_with_its_own_client(node: LiveNode) -> None:
    async def main(app: Disque) -> None:
        async with app.connect() as client:
            await app.setup()
            runner = Runner(app)
            outcomes: list[str] = []

            async def handle(job: HeldJob) -> None:
                outcomes.append((await runner.run(job)).kind)

            work = client.work(handle, *app.queues(), concurrency=4, withheaders=True)
            worker = asyncio.create_task(work)
            limit = HANG_SECONDS
            assert await double.then(double.bind()).add(1).result(timeout=limit) == 4
            assert await in_thread.add(3).result(timeout=limit) == 6
            members = [double.bind(n) for n in range(5)]
            assert await app.group(members, then=total.bind()).result(timeout=limit) == 20
            with pytest.raises(TaskFailed, match="TimeoutError: after"):
                await hang.add().result(timeout=limit)
            await asyncio.to_thread(wait_until, lambda: "dead" in outcomes)
            worker.cancel()
            with pytest.raises(asyncio.CancelledError):
                await worker

    with Disque(url(node)) as app:

        @app.task
        async def double(n: int) -> int:
            await asyncio.sleep(0)
            return 2 * n

        @app.task
        def in_thread(n: int) -> int:
            return double.add(n).get(timeout=HANG_SECONDS)

        @app.task
        def total(values: list[int]) -> int:
            return sum(values)

        @app.task(timeout=0.01, retries=0)
        async def hang() -> None:
            await asyncio.sleep(HANG_SECONDS)

        asyncio.run(main(app))


async def test_a_job_that_is_delivered_again_adds_nothing_twice(app: Disque) -> None:
    runs: list[str] = []

    @app.task(queue="a")
    async def first() -> int:
        runs.append("first")
        return 1

    @app.task(queue="b")
    async def second(n: int) -> int:
        runs.append("second")
        return n + 1

    class Forgetful:
        """A worker that dies before it acknowledges."""

        def __init__(self, job: HeldJob) -> None:
            self._job = job

        def __getattr__(self, name: str) -> object:
            return getattr(self._job, name)

        async def ack(self, result: bytes) -> None:
            await self._job.nack()

    async with app.connect() as client:
        handle = await first.then(second.bind()).add()
        runner = Runner(app)
        async with client.jobs("a", withheaders=True) as jobs:
            async for job in jobs:
                await runner.run(Forgetful(job))  # type: ignore[arg-type]
                if len(runs) == 3:
                    break
            assert (await client.qlen("a"), await client.qlen("b")) == (1, 1)
        async with working(app, client):
            assert await handle.result(timeout=HANG_SECONDS) == 2
    assert sorted(runs) == ["first"] * 4 + ["second"]


def test_setup_creates_policies_and_schedules_once(app: Disque, node: LiveNode) -> None:
    @app.task(queue="mail.out", rate="50/s", cron="0 7 * * mon", tz="Europe/Berlin")
    def send() -> None: ...

    @app.task(queue="images", dead="failures")
    def shrink(width: int) -> None: ...

    app.schedule("again", "@every 1h", shrink.options(priority=3).bind(64), catchup=True)
    assert node.ask("QSET", "mail.*", "RETRY", 7, "DEAD", "all.dead") == b"OK"
    other = ("CRON", "SET", "other:x", "@daily", "q", "x")
    assert node.ask(*other) == b"OK"
    assert node.ask("CRON", "SET", "shop:old", *other[3:]) == b"OK"
    app.setup()

    def seen() -> object:
        return node.ask("QGET"), node.ask("CRON", "GET", "shop:again"), node.ask("CRON", "LIST")

    before = seen()
    names = [fields[1] for fields in node.ask("CRON", "LIST")]  # type: ignore[attr-defined]
    assert sorted(names) == [b"other:x", b"shop:again", f"shop:{send.name}".encode()]
    # The rest of the pattern's policy applies in addition to what the task wants.
    policy = dict(zip(*[iter(node.ask("QGET", "mail.out"))] * 2, strict=True))  # type: ignore[call-overload]
    assert (policy[b"retry"], policy[b"dead"], policy[b"rate"]) == (7, b"all.dead", b"50/s")
    assert b"failures" in node.ask("QGET", "images")  # type: ignore[operator]
    assert node.ask("CRON", "PAUSE", f"shop:{send.name}") == b"OK"
    app.setup()
    after = seen()
    assert before[:2] == after[:2]  # type: ignore[index]
    paused = node.ask("CRON", "GET", f"shop:{send.name}")
    assert paused[paused.index(b"paused") + 1] == 1  # type: ignore[attr-defined, index]
    assert node.ask("CRON", "RUN", "shop:again")
    with working_thread(app) as outcomes:
        wait_until(lambda: outcomes)
    assert (outcomes[0].kind, outcomes[0].task) == ("done", shrink.name)


def test_an_app_without_a_name_has_schedules_and_deletes_none(node: LiveNode) -> None:
    others = [b"again", b"shop:x", b"work.check:old", b"work.tick2"]
    for name in others:
        assert node.ask("CRON", "SET", name, "@daily", "q", "x") == b"OK"
    with Disque(f"disque://127.0.0.1:{node.port}") as app:

        @app.task(name="work.tick", cron="@every 1h")
        def tick() -> None: ...

        app.schedule("again", "@every 1h", tick.options(priority=3).bind())
        app.setup()
        app.setup()
    names = [fields[1] for fields in node.ask("CRON", "LIST")]  # type: ignore[attr-defined]
    assert sorted(names) == sorted([*others, b"work.tick", b"work.tick:again"])


def test_many_asyncio_tasks_wait_without_threads_and_can_be_cancelled(
    app: Disque, node: LiveNode
) -> None:
    @app.task
    def work(n: int) -> int:
        return n

    def waiting() -> int:
        return int(node.info("clients")["blocked_clients"])

    async def main() -> None:
        handles = await work.map(range(50))
        waits = [asyncio.create_task(handle.result()) for handle in handles]
        # The threads of the loop are free for other calls meanwhile.
        await asyncio.to_thread(wait_until, lambda: waiting() == 50)
        waits[0].cancel()
        with pytest.raises(asyncio.CancelledError):
            await waits[0]
        await asyncio.to_thread(wait_until, lambda: waiting() == 49)
        worker = working_thread(app)
        await asyncio.to_thread(worker.__enter__)
        try:
            assert await asyncio.gather(*waits[1:]) == list(range(1, 50))
        finally:
            await asyncio.to_thread(worker.__exit__, None, None, None)

    async def in_trio() -> None:
        handle = await work.options(queue="nobody").add(1)
        with trio.move_on_after(0.05):
            await handle.result()
        await trio.to_thread.run_sync(wait_until, lambda: waiting() == 0)

    asyncio.run(main())
    trio.run(in_trio)


def test_a_child_adds_over_its_own_connection(app: Disque, node: LiveNode) -> None:
    @app.task
    def work() -> None: ...

    work.add()
    pid = os.fork()
    if pid == 0:  # a child must not come back into pytest
        try:
            work.add()
        finally:
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    work.add()
    assert node.ask("QLEN", "tasks") == 3


def test_results_are_gone_when_nodes_have_forgotten_them(app: Disque, node: LiveNode) -> None:
    @app.task
    def work() -> int:
        return 1

    id = work.add().id
    assert node.ask("GETJOB", "FROM", "tasks")
    assert node.ask("ACKJOB", id) == 1  # like a worker that leaves no result
    with pytest.raises(ResultGone, match="done"):
        app.handle(id).get(timeout=HANG_SECONDS)
    with pytest.raises(ResultGone, match="nothing is known"):
        app.handle("D-00000000-" + "0" * 24 + "-05a1").get(timeout=HANG_SECONDS)
    with pytest.raises(ReplyError):
        app.handle("x").get(timeout=HANG_SECONDS)


def test_the_example_runs(node: LiveNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISQUE_URL", url(node))
    monkeypatch.syspath_prepend(str(ROOT))
    shop = importlib.import_module("examples.tasks.shop")
    monkeypatch.setattr(shop.app, "nodes", [f"{node.host}:{node.port}"])
    with working_thread(shop.app):
        done = subprocess.run(
            [sys.executable, "-m", "examples.tasks.shop"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
            timeout=HANG_SECONDS,
        )
    assert done.stdout.splitlines() == [
        "to ann@example.org: hello",
        "to busy@example.org: hello",
        "cat: 32 wide",
        "3 thumbnails of ['dog.png']",
    ]
