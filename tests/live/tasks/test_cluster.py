"""Tasks on several nodes, one of which dies."""

import threading

import pytest

from disque_trio.tasks import Disque, TaskFailed
from tests.support.harness import HANG_SECONDS, ClusterFactory, LiveNode, wait_until
from tests.support.task_worker import working_thread


def test_a_group_ends_even_if_the_node_of_its_worker_is_killed(cluster: ClusterFactory) -> None:
    nodes = cluster(3)
    # So that jobs can be added with one of the three missing.
    assert nodes[0].ask("QSET", "q", "REPLICATE", 2) == b"OK"
    wait_until(lambda: all(node.ask("QGET", "q") for node in nodes))
    first, *others = [f"{node.host}:{node.port}" for node in nodes]
    # They start at different nodes, so one fetches from its node what the other adds.
    worker = Disque(f"disque://{first},{others[0]}")
    with Disque(f"disque://{others[1]},{others[0]}") as producer:
        begun: list[int] = []
        killed = threading.Event()

        def part(n: int) -> int:
            begun.append(n)
            assert n < 10 or killed.wait(HANG_SECONDS)
            if n < 0:
                raise ValueError("negative")
            return n

        def total(values: list[int]) -> int:
            return sum(values)

        for app in (worker, producer):
            parts = app.task(queue="q", name="part", redeliver_after=2, retries=0)(part)
            totals = app.task(queue="q", name="total", redeliver_after=2)(total)
        with working_thread(worker):
            members = [parts.bind(n) for n in range(30)]
            handle = producer.group(members, totals.bind())
            wait_until(lambda: sum(n >= 10 for n in begun) >= 4)
            nodes[0].kill()
            killed.set()
            assert handle.get(timeout=HANG_SECONDS) == 435
            with pytest.raises(TaskFailed, match="ValueError: negative"):
                parts.add(-1).get(timeout=HANG_SECONDS)


def restart(node: LiveNode) -> None:
    wire = node.wire()
    wire.send("RESTART")
    assert wire.closed()
    again = node.wire()
    wait_until(lambda: again("PING") == b"PONG")


def test_a_group_ends_although_all_nodes_were_restarted_and_forgot_its_members(
    cluster: ClusterFactory,
) -> None:
    nodes = cluster(3, "--appendonly", "yes", "--result-ttl", "0")
    ended: list[int] = []
    totals: list[int] = []
    go_on = threading.Event()
    app = Disque("disque://" + ",".join(f"{node.host}:{node.port}" for node in nodes))
    with app:

        @app.task(queue="q", redeliver_after=20)
        def part(n: int) -> int:
            assert n < 2 or go_on.wait(HANG_SECONDS)
            ended.append(n)
            return n

        @app.task(queue="q", redeliver_after=20)
        def total(values: list[int]) -> int:
            totals.append(sum(values))
            return totals[-1]

        with working_thread(app):
            _ = app.group([part.bind(n) for n in range(3)], total.bind()).id
            wait_until(lambda: sorted(ended) == [0, 1])
            wait_until(lambda: sum(int(n.info("stats")["total_jobs_acked"]) for n in nodes) >= 2)
            for node in nodes:
                restart(node)
            go_on.set()
            wait_until(lambda: totals == [3])


def test_on_any_node_the_last_add_counts_and_what_runs_does_not(cluster: ClusterFactory) -> None:
    nodes = cluster(3)
    apps = [Disque(f"disque://{node.host}:{node.port}") for node in nodes]
    ran: list[tuple[str, int]] = []
    held = threading.Event()

    def index(page: str, version: int) -> int:
        ran.append((page, version))
        assert version != 0 or held.wait(HANG_SECONDS)
        return version

    tasks = [
        app.task(queue="q", name="index", unique=lambda page, _: page, replace=True)(index)
        for app in apps
    ]
    later = [task.options(debounce=0.5) for task in tasks]
    with working_thread(apps[0]):
        first = tasks[0].add("a", 0)
        wait_until(lambda: ran == [("a", 0)])
        second = [later[at % 3].add("a", at) for at in range(1, 7)]
        assert {handle.id for handle in second} != {first.id}
        assert len({handle.id for handle in second}) == 1
        held.set()
        assert [handle.get(timeout=HANG_SECONDS) for handle in (first, *second)] == [0, *[6] * 6]
        assert ran == [("a", 0), ("a", 6)]
    for app in apps:
        app.close()
