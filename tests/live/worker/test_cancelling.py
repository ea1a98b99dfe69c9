"""Jobs that are cancelled while their tasks run."""

from pathlib import Path

import pytest
import trio

from disque_trio.tasks import Disque
from tests.support.harness import ClusterFactory, wait_until
from tests.support.worker_rig import Rig, worker_rig


@pytest.mark.parametrize("backend", ["trio", "asyncio"])
def test_a_worker_hears_at_once_of_cancelled_jobs(rig: Rig, backend: str) -> None:
    if backend == "asyncio":
        rig.change("Disque()", 'Disque(backend="asyncio")')
        rig.change("import trio\n", "import asyncio as trio\n")
    # Their retry time is so long that no WORKING tells the worker.
    ids = rig.add_all("gate", [["a"]], retry=3600) + rig.add_all("watch", [[]], retry=3600)
    worker = rig.start("--concurrency", "2")
    rig.noted("begun", count=2)
    with Disque(f"disque://127.0.0.1:{rig.port}") as app:
        app.cancel(ids[0])
        app.handle(ids[1]).cancel()
        rig.noted("lost")
        assert app.handle(ids[0]).get_state() == "cancelled"
    wait_until(lambda: worker.status().get("in_hand") == 0)
    wait_until(lambda: worker.ended("cancelled") == 1)
    rig.open("a")
    rig.add("gate", "a")
    rig.noted("ended")
    assert len(rig.notes("ended")) == 1
    assert worker.stop() == 0


async def test_a_waiting_job_can_be_cancelled_from_trio(rig: Rig) -> None:
    with Disque(f"disque://127.0.0.1:{rig.port}") as app:

        @app.task(name="quick", queue="mail")
        def quick(n: int) -> None: ...

        handle = await quick.add(1)
        await handle.cancel()
        await handle.cancel()
        assert await handle.state() == "cancelled"
        await app.cancel(handle.id)
    worker = await trio.to_thread.run_sync(rig.start)
    await trio.to_thread.run_sync(rig.add, "quick", 2)
    assert [words[1] for words in await trio.to_thread.run_sync(rig.noted, "quick")] == ["2"]
    assert await trio.to_thread.run_sync(worker.stop) == 0


def test_a_job_is_cancelled_by_a_node_that_does_not_hold_it(
    cluster: ClusterFactory, tmp_path: Path
) -> None:
    nodes = cluster(3)
    with worker_rig(tmp_path, nodes[0].port) as rig:
        [id] = rig.add_all("gate", [["a"]], retry=3600)
        worker = rig.start()
        rig.noted("begun")
        other = nodes[2].wire()
        assert other("SHOW", id) is None
        with Disque(f"disque://127.0.0.1:{nodes[2].port}") as app:
            assert app.handle(id).get_state() == "pending"
            app.cancel(id)
            assert app.handle(id).get_state() == "cancelled"
        wait_until(lambda: worker.ended("cancelled") == 1)
        assert not rig.notes("ended")
        assert worker.stop() == 0
