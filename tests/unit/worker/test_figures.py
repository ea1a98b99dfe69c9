"""The metrics of a worker for Prometheus, in both formats."""

from collections.abc import Callable, Iterator

import pytest
from prometheus_client import parser
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics import parser as open_parser

from disque_trio.metrics.labels import label_value
from disque_trio.metrics.scrapes import Scrapes
from disque_trio.metrics.web import Request
from disque_trio.process.fleet import State
from disque_trio.worker.figures import Figures
from disque_trio.worker.tally import Tally
from disque_trio.worker.view import View, WorkerView
from tests.support.monitoring import exported, table

MB = 1 << 20
FORMATS = {
    "text/plain": parser.text_string_to_metric_families,
    "application/openmetrics-text": open_parser.text_string_to_metric_families,
}
Found = dict[tuple[str, frozenset[tuple[str, str]]], float]


def process(state: State = State.SERVING, *, connected: bool = True) -> WorkerView:
    return WorkerView(0, 4711, state, False, in_hand=2, memory=50 * MB, connected=connected)


async def families(view: View, accept: str) -> list[Metric]:
    """Return the content of the page, parsed by prometheus-client."""
    scrapes = Scrapes("disque_worker", [Figures(lambda: view)])
    reply = await scrapes.page(Request("GET", "/metrics", {"accept": accept}))
    assert reply.content_type.startswith(accept)
    parse: Callable[[str], Iterator[Metric]] = FORMATS[accept]
    return list(parse(b"".join(reply.chunks).decode()))


async def samples(view: View, accept: str) -> Found:
    return {
        (sample.name.removeprefix("disque_worker_"), frozenset(sample.labels.items())): sample.value
        for family in await families(view, accept)
        for sample in family.samples
    }


@pytest.mark.parametrize("accept", FORMATS)
async def test_prometheus_can_parse_it(accept: str) -> None:
    tally = Tally()
    tally.add("send", "mail", "done", 0.2)
    tally.add("send", "mail", "done", 400.0)
    tally.waited, tally.errors, tally.last_job = 12.5, 2, 1000.0
    processes = [process(), process(connected=False), process(State.STARTING)]
    found = await samples(View(3, 8, processes, tally, {"died": 3}, {"mail": 7}), accept)

    def one(name: str, **labels: str) -> float:
        return found[name, frozenset(labels.items())]

    assert one("tasks_total", task="send", queue="mail", outcome="done") == 2
    assert one("task_seconds_bucket", task="send", le="0.1") == 0
    assert one("task_seconds_bucket", task="send", le="0.25") == 1
    assert one("task_seconds_bucket", task="send", le="300.0") == 1
    assert one("task_seconds_bucket", task="send", le="+Inf") == 2
    assert one("task_seconds_count", task="send") == 2
    assert one("task_seconds_sum", task="send") == 400.2
    assert one("in_hand") == 6
    assert one("slots") == 16
    assert one("wait_seconds_total") == 12.5
    assert one("poll_errors_total") == 2
    assert one("last_job_timestamp_seconds") == 1000
    assert one("processes", state="serving") == 2
    assert one("processes", state="starting") == 1
    assert one("connected_processes") == 1
    assert one("processes_stuck") == 0
    assert one("restarts_total", reason="died") == 3
    assert one("memory_bytes", pid="4711") == 50 * MB
    assert one("queue_jobs", queue="mail") == 7
    assert [one(f"processes_{bound}") for bound in ("least", "wanted", "most")] == [3, 3, 3]
    assert ("oldest_job_seconds", frozenset()) not in found


@pytest.mark.parametrize("accept", FORMATS)
async def test_the_bounds_and_the_processes_for_cpu_work_are_there(accept: str) -> None:
    processes = [process()._replace(cpu_processes=2, cpu_memory=70 * MB) for _ in range(2)]
    found = await samples(View(3, 8, processes, Tally(), {}, {}, (2, 8), 1.5), accept)

    def one(name: str) -> float:
        return found[name, frozenset()]

    assert [one(f"processes_{bound}") for bound in ("least", "wanted", "most")] == [2, 3, 8]
    assert one("oldest_job_seconds") == 1.5
    assert (one("cpu_processes"), one("cpu_memory_bytes")) == (4, 140 * MB)


@pytest.mark.parametrize("accept", FORMATS)
async def test_every_family_has_its_type_and_help(accept: str) -> None:
    found = await families(View(1, 8, [], Tally(), {}, {}), accept)
    assert all(family.type != "unknown" and family.documentation for family in found)
    assert len({family.name for family in found}) == len(found)


HOSTILE = (
    'odd "name"\\\n',
    "a\nb 1\n# EOF\ndisque_worker_in_hand 99",
    "\\",
    '"',
    "",
    " ",
    "{}",
    "\x00\x1b[2J",
    "\r\n",
    "\u2028",
    "\ud800",  # valid in JSON but not in UTF-8
    b"\xff\xfe".decode("utf-8", "surrogateescape"),
    "é" * 190,
    "n" * 5000,
)


@pytest.mark.parametrize("accept", FORMATS)
@pytest.mark.parametrize("name", HOSTILE)
async def test_hostile_names_stay_within_their_labels(accept: str, name: str) -> None:
    tally = Tally()
    tally.add(name, name, "dead", 0.1)
    tally.add("send", "mail", "done", 0.1)
    found = await samples(View(1, 8, [process()], tally, {}, {name: 5, "mail": 7}), accept)
    assert found["in_hand", frozenset()] == 2
    assert found["queue_jobs", frozenset({("queue", "mail")})] == 7
    assert sorted(value for (sample, _), value in found.items() if sample == "queue_jobs") == [5, 7]
    assert sum(value for (sample, _), value in found.items() if sample == "tasks_total") == 2


def test_similar_names_have_different_labels() -> None:
    assert len({label_value(name.encode("utf-8", "surrogatepass")) for name in HOSTILE}) == len(
        HOSTILE
    )


async def test_the_monitoring_page_lists_the_same_metrics() -> None:
    tally = Tally()
    tally.add("send", "mail", "done", 0.1)
    view = View(1, 8, [process()], tally, {"died": 1}, {"mail": 7}, (1, 2), 0.5)
    found = exported(await families(view, "application/openmetrics-text"))
    ours = {name: row for name, row in found.items() if not name.startswith("process_")}
    assert ours == table("worker")
