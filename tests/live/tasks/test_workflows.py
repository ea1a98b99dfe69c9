"""Chains and groups that are made of each other, on a real node."""

import threading
from typing import Any

import pytest
import trio

from disque_trio.tasks import (
    Disque,
    Handle,
    TaskFailed,
    TaskProgress,
    WorkflowStatus,
    chain,
    current_job,
    group,
)
from tests.support.harness import HANG_SECONDS, ClusterFactory, LiveNode, wait_until
from tests.support.task_worker import working_thread


def url(node: LiveNode) -> str:
    return f"disque://{node.host}:{node.port}"


def restart(node: LiveNode) -> None:
    wire = node.wire()
    wire.send("RESTART")
    assert wire.closed()
    again = node.wire()
    wait_until(lambda: again("PING") == b"PONG")


def test_a_chain_may_be_longer_than_headers_may_be(node: LiveNode) -> None:
    with Disque(url(node)) as app:

        @app.task
        def longer(n: int, text: str) -> int:
            return n + len(text)

        steps = [longer.bind("x" * 2000) for _ in range(59)]
        with working_thread(app):
            handle = chain([longer.bind(0, "x" * 2000), *steps]).add()
            assert handle.get(timeout=HANG_SECONDS) == 120_000


def test_each_step_runs_once_although_the_node_restarts_between_them(
    cluster: ClusterFactory,
) -> None:
    [node] = cluster(1, "--appendonly", "yes")
    runs: list[str] = []
    go_on = threading.Event()
    with Disque(url(node)) as app:

        @app.task(queue="q")
        def step(n: int, name: str) -> int:
            assert name != "long" or go_on.wait(HANG_SECONDS)
            runs.append(name)
            return n + 1

        @app.task(queue="q")
        def total(values: list[int], more: int) -> int:
            runs.append("total")
            return sum(values) + more

        inner = group([step.bind("a"), step.bind("b") | step.bind("c")]) | total.bind(100)
        work = chain(
            [
                step.bind(0, "first"),
                group([step.bind("long"), inner, step.bind("d")]),
                total.bind(1000),
                step.bind("last"),
            ]
        )
        with working_thread(app):
            _ = work.add().id
            wait_until(lambda: len(runs) == 6)
            restart(node)
            go_on.set()
            wait_until(lambda: "last" in runs)
    assert sorted(runs) == sorted(["first", "a", "b", "c", "d", "total", "long", "total", "last"])


def test_a_retried_task_adds_nothing_twice(node: LiveNode) -> None:
    runs: list[str] = []
    with Disque(url(node)) as app:

        @app.task
        def child(name: str) -> str:
            runs.append(name)
            return name

        @app.task(retries=2, backoff=(0.01, 0.01))
        def parent() -> str:
            handles = [child.add("a"), *child.map(["b", "b"]), group([child.bind("c")]).add()]
            runs.append("parent")
            if runs.count("parent") < 3:
                raise ValueError("again")
            return repr([handle.get(timeout=HANG_SECONDS) for handle in handles])

        with working_thread(app):
            assert parent.add().get(timeout=HANG_SECONDS) == "['a', 'b', 'b', ['c']]"
    assert sorted(runs) == ["a", "b", "b", "c", *["parent"] * 3]


def test_any_node_says_how_far_a_task_is(cluster: ClusterFactory) -> None:
    nodes = cluster(2)
    go_on = threading.Event()
    with Disque(url(nodes[0])) as app:

        def work(first: int = 0) -> int:
            job = current_job()
            assert job is not None
            for page in range(1001):
                job.progress(page / 1000, f"page {page}")
            assert go_on.wait(HANG_SECONDS)
            job.progress(1, "saved")
            return 1

        @app.task(queue="q")
        def quick() -> int:
            return 1

        async def work_in_loop() -> int:
            return work() if go_on.is_set() else await trio.to_thread.run_sync(work)

        @app.task(queue="q", redeliver_after=0, replicate=1)
        def once() -> int:
            return work()

        plain, in_loop = app.task(queue="q")(work), app.task(queue="q")(work_in_loop)
        with working_thread(app):
            for bound in (plain.bind(), in_loop.bind(), once.bind(), quick.bind() | plain.bind()):
                go_on.clear()
                handle = bound.add()
                wait_until(lambda h=handle: h.get_progress() == TaskProgress(1, "page 1000"))
                with Disque(url(nodes[1])) as other:
                    assert other.handle(handle.id).get_progress() == TaskProgress(1, "page 1000")
                go_on.set()
                assert handle.get(timeout=HANG_SECONDS) == 1
                assert handle.get_progress() is None
            for node in nodes:  # few commands tell the node
                counted = node.info("commandstats").get("cmdstat_working", "calls=0")
                assert int(counted.partition("calls=")[2].partition(",")[0]) < 100


def test_stored_results_outlive_restarts_and_the_memory_of_nodes(cluster: ClusterFactory) -> None:
    nodes = cluster(2, "--appendonly", "yes", "--result-ttl", "0")
    with Disque(url(nodes[0]), results="store") as app:

        @app.task(queue="q", retries=0, replicate=1)
        def export(size: int) -> str:
            if size < 0:
                raise ValueError("negative")
            return "x" * size

        @app.task(queue="q", replicate=1)
        def size(text: str) -> int:
            return len(text)

        with working_thread(app):
            handles = [
                export.add(15_000_000),
                (export.bind(20) | size.bind()).add(),
                group([export.bind(1), export.bind(2)]).add(),
                export.add(-1),
            ]
            with pytest.raises(TaskFailed, match="negative"):
                handles[-1].get(timeout=HANG_SECONDS)
            seen = [len(str(handle.get(timeout=HANG_SECONDS))) for handle in handles[:-1]]
            assert seen == [15_000_000, 2, len("['x', 'xx']")]
        for node in nodes:
            restart(node)
        for node in nodes:
            with Disque(url(node), results="store") as other:
                for handle, wanted in zip(handles, seen, strict=False):
                    again = other.handle(handle.id)
                    assert len(str(again.get(timeout=HANG_SECONDS))) == wanted
                    wait_until(lambda again=again: again.get_state() == "done")
                again = other.handle(handles[-1].id)
                with pytest.raises(TaskFailed, match="ValueError: negative"):
                    again.get(timeout=HANG_SECONDS)


def numbers(handle: Handle[Any]) -> tuple[int, list[int]]:
    seen = handle.get_status()
    assert seen is not None
    return seen.done, list(seen.failed)


def test_any_node_says_how_far_a_group_is(cluster: ClusterFactory) -> None:
    nodes = cluster(3)
    go_on = threading.Event()
    told: list[object] = []
    with Disque(url(nodes[0])) as app:

        @app.task(queue="q", retries=0, replicate=1)
        def step(n: int) -> int:
            if n in (3, 5):
                raise ValueError(f"no {n}")
            assert n < 37 or go_on.wait(HANG_SECONDS)
            return n

        @app.task(queue="q", replicate=1)
        def tell(what: object) -> None:
            told.append(what)

        with working_thread(app):
            work = group([step.bind(n) for n in range(40)], on_death=tell.bind())
            handle = work.on_error(tell.bind()).add()
            wanted = WorkflowStatus(40, 35, {3: "ValueError: no 3", 5: "ValueError: no 5"})
            wait_until(lambda: handle.get_status() == wanted)
            for node in nodes[1:]:
                with Disque(url(node)) as other:
                    there = other.handle(handle.id)
                    wait_until(lambda there=there: numbers(there) == (35, [3, 5]))
            wait_until(lambda: told)
            go_on.set()
            wait_until(lambda: len(told) == 2)
            assert numbers(handle) == (38, [3, 5])
