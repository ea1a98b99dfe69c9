"""How a worker stops: by signals, and when it is killed."""

import os
import pty
import signal

from disque_trio.client.shown import ShownJob
from disque_trio.job_past import NOTHING, Past
from tests.support.harness import wait_until
from tests.support.worker_rig import Rig, lives


def pasts(rig: Rig) -> list[Past]:
    """Take all queued jobs; return what they have been through, which was no failure."""
    with rig.client() as client:
        jobs = client.get("mail", count=100, nohang=True)
        shown = [ShownJob.of(client.show(job.id) or {}) for job in jobs]
    found = [Past.read(job.last_reason) for job in shown]
    assert [(job.nacks, job.additional_deliveries) for job in jobs] == [
        (past.returned, 0) for past in found
    ]
    return found


def test_running_tasks_may_finish_and_no_others_start(rig: Rig) -> None:
    rig.add_all("gate", [["a"], ["a"], ["a"]])
    worker = rig.start("--concurrency", "2")
    rig.noted("begun", count=2)
    worker.signal(signal.SIGTERM)
    wait_until(lambda: worker.pids("retiring"))
    rig.open("a")
    assert worker.ends() == 0
    assert len(rig.notes("begun")) == len(rig.notes("ended")) == 2
    assert pasts(rig) == [NOTHING]


def test_tasks_that_outlast_the_grace_period_are_requeued_without_a_failure(rig: Rig) -> None:
    rig.add_all("gate", [["a"], ["never"]])
    worker = rig.start("--grace", "0.3")
    rig.noted("begun", count=2)
    rig.open("a")
    rig.noted("ended")
    assert worker.stop() == 0
    assert pasts(rig) == [Past(1, 0, 0, "its worker stopped")]


def test_a_second_signal_requeues_at_once(rig: Rig) -> None:
    rig.add("gate", "never")
    worker = rig.start("--grace", "1000")
    rig.noted("begun")
    worker.signal(signal.SIGINT)
    wait_until(lambda: worker.pids("retiring"))
    worker.signal(signal.SIGINT)
    assert worker.ends() == 0
    assert pasts(rig) == [Past(1, 0, 0, "its worker stopped")]


def reporting(rig: Rig) -> int:
    """The id of the connection on which a worker process reports, once it does."""

    found: list[int] = []

    def find() -> bool:
        with rig.client() as client:
            reports = client.execute("WORKER", "LIST")
        assert isinstance(reports, list)
        for report in reports:
            assert isinstance(report, list)
            assert isinstance(report[0], int)
            found.append(report[0])
        return bool(found)

    wait_until(find)
    return found[0]


def test_a_worker_that_is_asked_to_stop_by_way_of_a_node_finishes_what_it_has(rig: Rig) -> None:
    rig.add_all("gate", [["a"], ["a"]])
    worker = rig.start("--concurrency", "1")
    rig.noted("begun")
    with rig.client() as client:
        assert client.execute("WORKER", "STOP", reporting(rig)) == 1
    wait_until(lambda: worker.pids("retiring"))
    rig.open("a")
    assert worker.ends() == 0
    assert len(rig.notes("begun")) == len(rig.notes("ended")) == 1
    assert pasts(rig) == [NOTHING]


def test_a_worker_that_is_asked_to_hand_back_does_so_at_once(rig: Rig) -> None:
    rig.add("gate", "never")
    worker = rig.start("--grace", "1000")
    rig.noted("begun")
    with rig.client() as client:
        assert client.execute("WORKER", "STOP", reporting(rig), "HANDBACK") == 1
    assert worker.ends() == 0
    assert pasts(rig) == [Past(1, 0, 0, "its worker stopped")]


def test_the_job_of_a_killed_process_runs_again_in_another(rig: Rig) -> None:
    worker = rig.start()
    (first,) = worker.serves()
    rig.add("gate", "a")
    rig.noted("begun")
    os.kill(first, signal.SIGKILL)
    rig.noted("begun", count=2)
    rig.open("a")
    ((*_, second),) = rig.noted("ended")
    assert int(second) != first
    assert worker.stop() == 0


def test_processes_stop_cleanly_when_their_parent_is_killed(rig: Rig) -> None:
    rig.add_all("gate", [["a"], ["a"]])
    worker = rig.start("--processes", "2", "--concurrency", "1")
    pids = worker.serves(2)
    rig.noted("begun", count=2)
    worker.signal(signal.SIGKILL)
    worker.ends()
    rig.add("gate", "a")
    rig.open("a")
    wait_until(lambda: not any(lives(pid) for pid in pids))
    assert len(rig.notes("begun")) == len(rig.notes("ended")) == 2
    # A process that has not noticed yet may take the job, and gives it back then.
    (past,) = pasts(rig)
    assert not past.crashes


def test_a_process_that_gets_a_signal_itself_finishes_and_is_replaced(rig: Rig) -> None:
    rig.add("gate", "a")
    worker = rig.start()
    (first,) = worker.serves()
    rig.noted("begun")
    os.kill(first, signal.SIGTERM)
    wait_until(lambda: worker.pids() not in ([], [first]))
    rig.open("a")
    rig.noted("ended")
    wait_until(lambda: not lives(first))
    assert worker.stop() == 0


def test_a_task_that_kills_its_process_does_not_end_the_worker(rig: Rig) -> None:
    rig.add("die", 2)
    worker = rig.start("--restarts", "1")
    rig.noted("lives")
    assert worker.stop() == 0


def test_the_worker_ends_when_no_process_starts_any_more(rig: Rig) -> None:
    worker = rig.start("--restarts", "2")
    (first,) = worker.serves()
    rig.change("VERSION = 1", "raise RuntimeError")
    os.kill(first, signal.SIGKILL)
    assert worker.ends() == 1
    assert "RuntimeError" in worker.last_line()


def test_on_a_terminal_it_shows_counts_and_stops_when_the_terminal_is_closed(rig: Rig) -> None:
    ours, theirs = pty.openpty()
    try:
        rig.add("gate", "a")
        worker = rig.start(terminal=theirs)
    finally:
        os.close(theirs)
    shown = b""
    while b" in hand" not in shown:
        shown += os.read(ours, 4096)
    rig.noted("begun")
    os.close(ours)
    worker.signal(signal.SIGHUP)  # as from the system when the terminal closes
    wait_until(lambda: worker.pids("retiring"))
    rig.open("a")
    assert worker.ends() == 0
    assert rig.notes("ended")
