"""What is told of a worker: to Prometheus, to probes, on a terminal."""

import json

from prometheus_client.parser import text_string_to_metric_families

from disque_trio.worker.fleet import State
from disque_trio.worker.tally import MOST, Tally
from disque_trio.worker.view import ProcessView, View, metrics

MB = 1 << 20


def process(state: State = State.SERVING, *, stuck: bool = False) -> ProcessView:
    return ProcessView(0, 4711, state, stuck, in_hand=2, memory=50 * MB)


def view(*processes: ProcessView, tally: Tally | None = None) -> View:
    return View(2, list(processes), tally or Tally(), {"died": 3}, {"mail": 7})


def samples(text: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_prometheus_can_read_it() -> None:
    tally = Tally()
    tally.add("send", "mail", "done", 0.2)
    tally.add("send", "mail", "done", 400.0)
    tally.add('odd "name"\\\n', "q", "dead", 0.001)
    found = samples(metrics(view(process(), process(State.STARTING), tally=tally)))

    def one(name: str, **labels: str) -> float:
        return found[f"disque_worker_{name}", frozenset(labels.items())]

    assert one("tasks_total", task="send", queue="mail", outcome="done") == 2
    assert one("tasks_total", task='odd "name"\\\n', queue="q", outcome="dead") == 1
    assert one("task_seconds_bucket", task="send", le="0.1") == 0
    assert one("task_seconds_bucket", task="send", le="0.25") == 1
    assert one("task_seconds_bucket", task="send", le="300.0") == 1
    assert one("task_seconds_bucket", task="send", le="+Inf") == 2
    assert one("task_seconds_count", task="send") == 2
    assert one("task_seconds_sum", task="send") == 400.2
    assert one("in_hand") == 4
    assert one("processes", state="serving") == one("processes", state="starting") == 1
    assert one("restarts_total", reason="died") == 3
    assert one("memory_bytes", pid="4711") == 50 * MB
    assert one("queue_jobs", queue="mail") == 7


def test_every_family_has_its_type_and_help() -> None:
    families = list(text_string_to_metric_families(metrics(view())))
    assert len(families) == 8
    assert all(family.type != "unknown" and family.documentation for family in families)


def test_it_is_well_while_a_process_serves_and_none_is_stuck() -> None:
    assert view(process(), process(State.STARTING)).health()[0]
    assert not view(process(State.STARTING), process(State.RETIRING)).health()[0]
    assert not view(process(), process(stuck=True)).health()[0]
    assert not view().health()[0]


def test_a_file_has_the_same() -> None:
    status = json.loads(view(process()).to_json(17, 1000.5))
    assert (status["pid"], status["time"], status["well"]) == (17, 1000.5, True)
    assert status["processes"][0]["state"] == "serving"


def test_the_line_has_the_counts() -> None:
    tally = Tally()
    for _ in range(1234):
        tally.add("send", "mail", "done", 0.2)
    line = view(process(), tally=tally).line(55.4)
    assert all(part in line for part in ("1/2", "55/s", "1,234 done", "2 in hand", "7 queued"))


def test_what_processes_have_counted_adds_up() -> None:
    one, other, all_of_them = Tally(), Tally(), Tally()
    one.add("a", "q", "done", 0.2)
    one.add("b", "q", "dead", 0.2)
    other.add("a", "q", "done", 7.0)
    for tally in (one, other, one):  # what was taken is not there again
        all_of_them.merge(json.loads(json.dumps(tally.take())))
    assert all_of_them.counts == {("a", "q", "done"): 2, ("b", "q", "dead"): 1}
    assert sum(all_of_them.seconds["a"].counts) == 2
    assert all_of_them.seconds["a"].total == 7.2
    assert (all_of_them.all, all_of_them.of("done"), all_of_them.of("lost")) == (3, 2, 0)


def test_names_without_end_become_one() -> None:
    one, all_of_them = Tally(), Tally()
    for number in range(3 * MOST):
        one.add(f"task {number}", "q", "dead", 0.1)
    assert len(one.seconds) == MOST + 1
    all_of_them.merge(one.take())
    all_of_them.add("late", "q", "done", 0.1)
    assert len(all_of_them.seconds) == len(all_of_them.counts) - 1 == MOST + 1
    assert all_of_them.all == 3 * MOST + 1
