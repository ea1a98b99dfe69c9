"""Tasks that run each in a process that runs nothing else meanwhile."""

import os
import signal
from collections.abc import Iterator

import pytest

from disque_trio.tasks import Disque, TaskFailed
from tests.support.harness import HANG_SECONDS, wait_until
from tests.support.worker_rig import Rig, lives


@pytest.fixture
def app(rig: Rig) -> Iterator[Disque]:
    with Disque(f"disque://127.0.0.1:{rig.port}") as app:
        yield app


def test_tasks_run_beside_each_other_in_processes_with_progress_and_results(
    rig: Rig, app: Disque
) -> None:
    ids = rig.add_all("compute", [["a"], ["b"]])
    worker = rig.start("--cpu-processes", "2")
    pids = {int(pid) for _, _, pid in rig.noted("begun", count=2)}
    assert len(pids) == 2
    assert not pids & set(worker.serves())
    wait_until(lambda: app.handle(ids[0]).get_progress() is not None)
    rig.open("a")
    assert app.handle(ids[0]).get(HANG_SECONDS) == ["a", False]
    rig.open("b")
    assert app.handle(ids[1]).get(HANG_SECONDS) == ["b", False]
    rig.add("nested", 2)  # adds another one from inside
    rig.noted("nested", 0)
    assert {int(words[-1]) for words in rig.notes("nested")} <= pids
    rig.add("quick", 1)
    assert not {int(words[-1]) for words in rig.noted("quick")} & pids
    assert worker.stop() == 0
    wait_until(lambda: not any(map(lives, pids)))


def test_tasks_for_which_there_is_no_process_wait_in_their_queue_and_not_in_slots(
    rig: Rig, app: Disque
) -> None:
    rig.change('name="compute", queue="mail"', 'name="compute", queue="cpu"')
    ids = rig.add_all("compute", [["a"]] * 6, queue="cpu")
    worker = rig.start("--concurrency", "3", "--cpu-processes", "1")
    rig.noted("begun")
    rig.add_all("sms", [[n] for n in range(20)], queue="sms")
    rig.noted("sms", count=20)
    with rig.client() as client:
        assert client.qlen("cpu") == 5
    assert len(rig.notes("begun")) == 1
    wait_until(lambda: worker.status()["in_hand"] == 1)
    rig.open("a")
    for id in ids:
        assert app.handle(id).get(HANG_SECONDS) == ["a", False]
    assert worker.stop() == 0


def test_a_task_beyond_its_time_limit_ends_with_its_process_while_others_go_on(
    rig: Rig, app: Disque
) -> None:
    rig.add("gate", "g")
    rig.add("compute", "c")
    (late,) = rig.add_all("loop", [[]])
    worker = rig.start("--cpu-processes", "2")
    with pytest.raises(TaskFailed, match=r"TimeoutError: after 0\.5 s"):
        app.handle(late).get(HANG_SECONDS)
    loops = [int(pid) for _, pid in rig.notes("loop")]
    assert len({*loops}) == 2  # with its retry
    assert not any(map(lives, loops))
    for name in "gc":
        rig.open(name)
    rig.noted("ended", "g")
    rig.noted("left", "c")
    assert len(rig.notes("begun")) == 2
    assert worker.ended("runaway") == 0
    assert worker.stop() == 0


def test_a_crash_counts_against_its_job_alone(rig: Rig, app: Disque) -> None:
    rig.add("gate", "g")
    (id,) = rig.add_all("crash", [[]])
    worker = rig.start("--cpu-processes", "2")
    with pytest.raises(TaskFailed, match="its process died: killed by SIGABRT, memory"):
        app.handle(id).get(HANG_SECONDS)
    assert len({pid for _, pid in rig.notes("crash")}) == 3
    rig.open("g")
    rig.noted("ended", "g")
    assert len(rig.notes("begun", "g")) == 1
    assert worker.stop() == 0


def test_a_cancelled_task_finds_its_job_lost_or_is_ended_if_asked(rig: Rig, app: Disque) -> None:
    ids = rig.add_all("compute", [["a"], ["b"]], retry=3600)
    worker = rig.start("--cpu-processes", "2")
    begun = {name: int(pid) for _, name, pid in rig.noted("begun", count=2)}
    app.cancel(ids[0])
    rig.noted("left", "a")
    app.cancel(ids[1], terminate=True)
    rig.noted("left", "b")
    wait_until(lambda: not lives(begun["b"]))
    assert lives(begun["a"])
    wait_until(lambda: worker.ended("cancelled") == 1)
    wait_until(lambda: worker.status().get("in_hand") == 0)
    assert worker.stop() == 0


def test_an_end_that_is_asked_for_touches_no_task_beside_others(rig: Rig, app: Disque) -> None:
    (id,) = rig.add_all("watch", [[]], retry=3600)
    rig.add("gate", "g")
    worker = rig.start()
    rig.noted("begun", count=2)
    app.cancel(id, terminate=True)
    rig.noted("lost")
    rig.open("g")
    rig.noted("ended", "g")
    assert len({words[-1] for words in [*rig.notes("begun"), *rig.notes("lost")]}) == 1
    assert worker.stop() == 0


def test_stopping_hands_a_task_back_and_is_no_crash(rig: Rig) -> None:
    rig.add("compute", "a")
    for stops in range(4):  # more than the crashes that a job may have
        worker = rig.start("--grace", "0")
        *_, (_, _, pid) = rig.noted("begun", count=stops + 1)
        os.kill(int(pid), signal.SIGTERM)  # as for all processes of a group
        assert worker.stop() == 0
        wait_until(lambda pid=int(pid): not lives(pid))  # type: ignore[misc]
    rig.open("a")
    worker = rig.start()
    rig.noted("left", "a")
    wait_until(lambda: worker.ended("done") == 1)
    assert worker.stop() == 0


@pytest.mark.parametrize("task", ["compute", "loop"])
def test_it_ends_with_the_worker_process_that_dies(rig: Rig, task: str) -> None:
    rig.change("timeout=0.5", "timeout=600")
    rig.add(task, *["a"] * (task == "compute"))
    worker = rig.start()
    first = {"compute": "begun", "loop": "loop"}[task]
    (*_, pid), *_ = rig.noted(first)
    (serving,) = worker.serves()
    os.kill(serving, signal.SIGKILL)
    wait_until(lambda: not lives(int(pid)))
    rig.noted(first, count=2)
    worker.signal(signal.SIGKILL)
