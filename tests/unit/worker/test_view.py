"""What probes and terminals see of a worker."""

import json

from disque_trio.process.fleet import State
from disque_trio.worker.tally import LONGEST, MOST, OTHER, Tally, Waits
from disque_trio.worker.view import View, WorkerView

MB = 1 << 20


def process(state: State = State.SERVING, *, stuck: bool = False) -> WorkerView:
    return WorkerView(0, 4711, state, stuck, in_hand=2, memory=50 * MB, connected=True)


def view(*processes: WorkerView, tally: Tally | None = None) -> View:
    return View(2, 8, list(processes), tally or Tally(), {"died": 3}, {"mail": 7})


def test_a_worker_is_healthy_while_a_process_serves_and_none_is_stuck() -> None:
    assert view(process(), process(State.STARTING)).health()[0]
    assert not view(process(State.STARTING), process(State.RETIRING)).health()[0]
    assert not view(process(), process(stuck=True)).health()[0]
    assert not view().health()[0]


def test_the_status_file_has_the_same() -> None:
    status = view(process()).status(17, 1000.5)
    assert (status["pid"], status["time"], status["well"]) == (17, 1000.5, True)
    assert status["processes"][0]["state"] == "serving"


def test_the_line_has_the_counts() -> None:
    tally = Tally()
    for _ in range(1234):
        tally.add("send", "mail", "done", 0.2)
    line = view(process(), tally=tally).line(55.4)
    assert all(part in line for part in ("1/2", "55/s", "1,234 done", "2 in hand", "7 queued"))


def test_processes_for_cpu_work_and_their_memory_are_in_the_line() -> None:
    busy = process()._replace(cpu_processes=2, cpu_memory=70 * MB)
    assert "CPU" not in view(process()).line(0)
    line = view(busy, process()).line(0)
    assert all(part in line for part in ("2 CPU processes", "170 MiB"))


def test_counts_of_processes_are_added_up() -> None:
    one, other, all_of_them = Tally(), Tally(), Tally()
    one.add("a", "q", "done", 0.2)
    one.add("b", "q", "dead", 0.2)
    other.add("a", "q", "done", 7.0)
    for tally in (one, other, one):  # each count is taken only once
        all_of_them.merge(json.loads(json.dumps(tally.take())))
    assert all_of_them.counts == {("a", "q", "done"): 2, ("b", "q", "dead"): 1}
    assert sum(all_of_them.seconds["a"].counts) == 2
    assert all_of_them.seconds["a"].sum == 7_200_000
    assert (all_of_them.all, all_of_them.of("done"), all_of_them.of("lost")) == (3, 2, 0)


def test_too_many_names_are_merged() -> None:
    one, all_of_them = Tally(), Tally()
    for number in range(3 * MOST):
        one.add(f"task {number}", "q", "dead", 0.1)
    assert len(one.seconds) == MOST + 1
    all_of_them.merge(one.take())
    all_of_them.add("late", "q", "done", 0.1)
    assert len(all_of_them.seconds) == len(all_of_them.counts) - 1 == MOST + 1
    assert all_of_them.all == 3 * MOST + 1


def test_very_long_names_are_merged() -> None:
    tally = Tally()
    tally.add("n" * LONGEST, "q", "done", 0.1)
    tally.add("n" * (LONGEST + 1), "q", "done", 0.1)
    assert set(tally.seconds) == {"n" * LONGEST, OTHER}


def test_waits_and_errors_are_added_up_and_the_last_job_counts() -> None:
    one, all_of_them = Tally(), Tally()
    one.waited, one.errors, one.last_job = 2.5, 3, 1000.0
    all_of_them.last_job = 900.0
    for _ in range(2):  # each count is taken only once
        all_of_them.merge(json.loads(json.dumps(one.take())))
    assert (all_of_them.waited, all_of_them.errors, all_of_them.last_job) == (2.5, 3, 1000.0)


def test_waiting_slots_are_counted_before_their_job_arrives() -> None:
    tally = Tally()
    waits = Waits(tally)
    waits.begin(1000.0)
    waits.begin(1001.0)
    waits.count(1003.0)
    assert tally.waited == 5.0
    waits.end(1004.0)
    assert tally.waited == 7.0
    waits.end(1010.0)
    waits.count(2000.0)
    assert tally.waited == 13.0
