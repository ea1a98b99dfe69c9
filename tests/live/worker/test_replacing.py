"""Processes that are replaced while the worker continues."""

import signal
import urllib.request

from prometheus_client.parser import text_string_to_metric_families

from tests.support.harness import HANG_SECONDS, free_port, wait_until
from tests.support.worker_rig import Rig, lives, twice


def test_a_runaway_task_ends_its_process_after_the_other_tasks_in_it(rig: Rig) -> None:
    rig.add("gate", "a")
    worker = rig.start("--concurrency", "2", "--grace", "100")
    (first,) = worker.serves()
    rig.noted("begun")
    rig.add("spin")
    rig.noted("spin")
    wait_until(lambda: worker.pids() not in ([], [first]))
    assert lives(first)
    rig.open("a")
    rig.noted("ended")
    wait_until(lambda: not lives(first))
    assert len(rig.notes("begun")) == 1
    assert worker.stop() == 0


def test_no_task_waits_for_a_runaway_one_in_its_process(rig: Rig) -> None:
    rig.add("spin")
    rig.add("quick", 1)
    worker = rig.start("--concurrency", "1")
    ((*_, second),) = rig.noted("quick")
    ((*_, first),) = rig.notes("spin")
    assert first != second
    wait_until(lambda: worker.ended("done") == 1)
    tasks = worker.status()["tasks"]
    assert (tasks["runaway"], tasks["retried"]) == (1, 0)
    assert worker.stop() == 0


def test_a_task_that_ignores_its_cancellation_ends_its_process(rig: Rig) -> None:
    sleep = 'time.sleep(60)\n\n@app.task(name="block"'
    rig.change("def spin", "async def spin")
    rig.change(sleep, f"await trio.to_thread.run_sync(time.sleep, 60){sleep[14:]}")
    rig.add("spin")
    rig.add("quick", 1)
    worker = rig.start("--concurrency", "1")
    ((*_, second),) = rig.noted("quick")
    ((*_, first),) = rig.notes("spin")
    assert first != second
    wait_until(lambda: not lives(int(first)))
    wait_until(lambda: worker.ended("runaway") == 1)
    assert worker.stop() == 0


def test_a_task_that_blocks_its_whole_process_is_killed_with_it(rig: Rig) -> None:
    worker = rig.start()
    (first,) = worker.serves()
    rig.add("block")
    rig.noted("block", count=2)
    assert not lives(first)
    assert worker.stop() == 0


def test_a_task_that_blocks_the_loop_of_asyncio_ends_its_process(rig: Rig) -> None:
    rig.change("Disque()", 'Disque(backend="asyncio")')
    rig.add("block")
    worker = rig.start()
    ((*_, first), (*_, second)) = rig.noted("block", count=2)
    assert first != second
    wait_until(lambda: not lives(int(first)))
    assert worker.ended("runaway") == 1
    assert worker.stop() == 0


def test_new_code_runs_after_sighup_and_nothing_is_lost_meanwhile(rig: Rig) -> None:
    worker = rig.start("--processes", "2", "--concurrency", "2")
    old = set(worker.serves(2))
    rig.add("gate", "a")
    rig.noted("begun", "a")
    rig.change("VERSION = 1", "VERSION = 2")
    worker.signal(signal.SIGHUP)
    rig.add_all("some", [[n] for n in range(100)])
    wait_until(lambda: len(worker.pids()) == 2 and not old & set(worker.pids()))
    rig.add("quick", 1)
    assert rig.noted("quick")[0][2] == "2"
    rig.noted("ended", count=100)
    # The process with a task still has it.
    assert sum(lives(pid) for pid in old) >= 1
    rig.open("a")
    rig.noted("ended", "a")
    wait_until(lambda: not any(lives(pid) for pid in old))
    assert not twice(rig.notes("begun"))
    assert worker.stop() == 0


def test_a_change_of_the_code_is_noticed(rig: Rig) -> None:
    worker = rig.start("--reload")
    (first,) = worker.serves()
    rig.change("VERSION = 1", "VERSION = 2")
    wait_until(lambda: worker.pids() not in ([], [first]))
    rig.add("quick", 1)
    assert rig.noted("quick")[0][2] == "2"
    assert worker.stop() == 0


def test_code_that_cannot_be_imported_leaves_the_old_processes_running_until_it_is_fixed(
    rig: Rig,
) -> None:
    worker = rig.start("--reload")
    old = worker.serves()
    rig.change("VERSION = 1", "VERSION = nothing")
    wait_until(lambda: worker.pids("starting"))
    wait_until(lambda: not worker.pids("starting"))
    assert worker.pids() == old
    rig.add("quick", 1)
    assert rig.noted("quick")[0][2] == "1"
    rig.change("VERSION = nothing", "VERSION = 3")
    wait_until(lambda: worker.pids() not in ([], old))
    rig.add("quick", 2)
    assert rig.noted("quick", count=2)[1][2] == "3"
    assert worker.stop() == 0


def test_a_process_is_replaced_after_its_maximum_of_tasks(rig: Rig) -> None:
    rig.add_all("quick", [[n] for n in range(7)])
    worker = rig.start("--max-tasks", "3", "--concurrency", "1")
    notes = rig.noted("quick", count=7)
    assert len({pid for *_, pid in notes}) == 3
    assert not twice(notes)
    assert worker.stop() == 0


def test_a_process_that_uses_too_much_memory_is_replaced_when_its_tasks_are_done(
    rig: Rig,
) -> None:
    rig.add("gate", "a")
    worker = rig.start("--max-memory", "150mb")
    (first,) = worker.serves()
    rig.noted("begun")
    rig.add("grow", 200)
    rig.noted("grown")
    wait_until(lambda: worker.pids() not in ([], [first]))
    rig.open("a")
    rig.noted("ended")
    wait_until(lambda: not lives(first))
    assert len(rig.notes("begun")) == 1
    assert worker.stop() == 0


def test_an_app_that_always_uses_too_much_memory_is_not_replaced_forever(rig: Rig) -> None:
    worker = rig.start("--max-memory", "1mb")
    (first,) = worker.serves()
    wait_until(lambda: worker.status()["processes"][0]["memory"] > 1 << 20)
    assert worker.pids() == [first]
    rig.add("quick", 1)
    wait_until(lambda: worker.pids() not in ([], [first]))
    assert worker.stop() == 0


def test_a_process_that_ends_after_its_tasks_does_not_count_as_a_death(rig: Rig) -> None:
    port = free_port()
    rig.add_all("quick", [[n] for n in range(3)])
    worker = rig.start("--max-tasks", "1", "--concurrency", "1", "--metrics", str(port))
    rig.noted("quick", count=3)

    def restarts() -> dict[str, float]:
        with urllib.request.urlopen(
            f"http://127.0.0.1:{port}/metrics", timeout=HANG_SECONDS
        ) as answer:
            families = text_string_to_metric_families(answer.read().decode())
            samples = [sample for family in families for sample in family.samples]
        name = "disque_worker_restarts_total"
        return {one.labels["reason"]: one.value for one in samples if one.name == name}

    wait_until(lambda: sum(restarts().values()) == 3)
    assert restarts() == {"tasks": 3}
    assert worker.stop() == 0
