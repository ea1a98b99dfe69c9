"""Metrics of streaming queries, with made-up progress."""

import json
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.openmetrics.exposition import generate_latest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from disque_spark.leases.backlog import Behind, reported
from disque_spark.metrics import MOST, MicroBatch, Source, StreamMetrics
from tests.support.monitoring import exported, table

ID = "0f2f13fb-c4fb-4add-be7c-720e47e09e61"
NOW = 1000.0


class Seen:
    """Metrics, and the contents of their registry."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.metrics = StreamMetrics(self.registry, lambda: NOW)

    def __call__(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"disque_spark_{name}", labels)

    def state(self, query: str) -> list[str]:
        """Return the states that the query is in."""
        return [
            state
            for state in ("running", "idle", "stopped", "failed")
            if self("query_state", query=query, state=state)
        ]


@pytest.fixture
def seen() -> Seen:
    return Seen()


LATEST = json.dumps(
    {"seq": 1, "log": "a9"}
    | reported("disque: x, y at a:1", {"x": Behind(14, 10, 7.25), "y": Behind(2, 0, 0.5)})
)


def progress(**changes: Any) -> dict[str, Any]:
    """Return it as Spark reports it."""
    return {
        "batchId": 7,
        "batchDuration": 4521,
        "numInputRows": 4,
        "inputRowsPerSecond": 1.5,
        "processedRowsPerSecond": 0.9,
        "durationMs": {"addBatch": 3894, "latestOffset": 7},
        "stateOperators": [{"numRowsTotal": 3, "memoryUsedBytes": 500}],
        "sources": [
            {"endOffset": '{"seq":1,"log":"a9"}', "latestOffset": LATEST, "numInputRows": 1},
            {"endOffset": 5, "latestOffset": 12, "numInputRows": 3},
        ],
        **changes,
    }


def test_batches_are_counted(seen: Seen) -> None:
    seen.metrics.started(ID, "mine")
    for _ in range(2):
        seen.metrics.batch(ID, "mine", MicroBatch.of(progress()))
    assert seen.state("mine") == ["running"]
    assert seen("batches_total", query="mine") == 2
    assert seen("input_rows_total", query="mine") == 8
    assert seen("last_batch", query="mine") == 7
    assert seen("processed_rows_per_second", query="mine") == 0.9
    assert seen("batch_seconds_sum", query="mine") == 2 * 4.521
    assert seen("batch_seconds_bucket", query="mine", le="2.5") == 0
    assert seen("batch_seconds_bucket", query="mine", le="5.0") == 2
    assert seen("batch_step_seconds_total", query="mine", step="addBatch") == 2 * 3.894
    assert seen("state_rows", query="mine") == 3
    assert seen("state_memory_bytes", query="mine") == 500
    assert seen("last_event_timestamp_seconds", query="mine") == NOW


def test_sources_tell_where_they_are_as_far_as_they_count(seen: Seen) -> None:
    seen.metrics.batch(ID, None, MicroBatch.of(progress()))
    assert seen("source_input_rows_total", query=ID, source="1") == 3
    assert seen("source_offset", query=ID, source="0") == 1  # batches of ours
    assert seen("source_behind", query=ID, source="0") == 10  # jobs
    assert seen("source_offset", query=ID, source="1") == 5
    assert seen("source_behind", query=ID, source="1") == 7


@pytest.mark.parametrize("offset", [None, "", "null", "{", '{"topic":{"0":5}}', "true", "[1]", {}])
def test_an_offset_that_is_no_number_is_left_out(offset: object) -> None:
    source = Source.of({"endOffset": offset, "latestOffset": offset, "numInputRows": None})
    assert source == (0, None, None, None)
    assert source.behind is None


def test_queues_tell_of_the_jobs_behind_the_last_batch(seen: Seen) -> None:
    seen.metrics.batch(ID, None, MicroBatch.of(progress()))
    x = {"query": ID, "source": "0", "queue": "x"}
    assert seen("queue_jobs", **x) == 14
    assert seen("queue_behind", **x) == 10
    assert seen("queue_oldest_job_age_seconds", **x) == 7.25
    for of, value in (("min", 0), ("max", 10), ("avg", 5)):
        assert seen("source_queue_behind", query=ID, source="0", of=of) == value
    gone = reported("", {"y": Behind(1, 1, 0.5)})
    seen.metrics.batch(ID, None, MicroBatch.of(progress(sources=[{"latestOffset": gone}])))
    assert seen("queue_behind", **x) is None  # a queue of a pattern that is now empty
    assert seen("queue_behind", query=ID, source="0", queue="y") == 1
    seen.metrics.idle(ID)
    assert seen("queue_behind", query=ID, source="0", queue="y") == 0
    assert seen("source_behind", query=ID, source="0") == 0


def test_a_progress_with_almost_nothing_in_it_counts_as_well(seen: Seen) -> None:
    bare = dict.fromkeys(progress(), None) | {"batchId": 0}
    seen.metrics.batch(ID, None, MicroBatch.of(bare))
    assert seen("batches_total", query=ID) == 1
    assert seen("input_rows_total", query=ID) == 0


def test_rows_are_those_of_the_sources_if_there_is_no_sum() -> None:
    assert MicroBatch.of(progress(numInputRows=None)).rows == 4


def test_a_query_that_is_idle_processes_nothing(seen: Seen) -> None:
    seen.metrics.started(ID, "mine")
    seen.metrics.batch(ID, "mine", MicroBatch.of(progress()))
    seen.metrics.idle(ID)
    assert seen.state("mine") == ["idle"]
    assert seen("processed_rows_per_second", query="mine") == 0
    seen.metrics.batch(ID, "mine", MicroBatch.of(progress()))
    assert seen.state("mine") == ["running"]


def test_the_end_of_a_query_is_seen_until_it_begins_again(seen: Seen) -> None:
    seen.metrics.started(ID, "mine")
    assert seen("failures_total", query="mine") == 0
    seen.metrics.ended(ID, "ZeroDivisionError")
    assert seen.state("mine") == ["failed"]
    assert seen("failures_total", query="mine") == 1
    seen.metrics.started(ID, "mine")
    assert seen.state("mine") == ["running"]
    seen.metrics.ended(ID, None)
    assert seen.state("mine") == ["stopped"]
    assert seen("failures_total", query="mine") == 1
    assert seen("starts_total", query="mine") == 2


def test_of_queries_without_end_those_that_ended_first_are_forgotten(seen: Seen) -> None:
    seen.metrics.started("runs on", None)
    for number in range(MOST + 10):
        seen.metrics.started(f"id {number}", None)
        seen.metrics.batch(f"id {number}", None, MicroBatch.of(progress()))
        seen.metrics.ended(f"id {number}", None)
    seen.metrics.started("last", None)
    assert seen.state("runs on") == seen.state("last") == ["running"]
    assert seen("batches_total", query="id 0") is None
    assert seen("source_offset", query="id 0", source="1") is None
    assert seen("batches_total", query=f"id {MOST + 9}") == 1
    known = {
        sample.labels["query"] for family in seen.registry.collect() for sample in family.samples
    }
    assert len(known) == MOST


def test_names_may_have_anything_in_them(seen: Seen) -> None:
    name = 'odd "name"\\\n# {} é'
    seen.metrics.started(ID, name)
    families = text_string_to_metric_families(generate_latest(seen.registry).decode())
    assert name in {sample.labels["query"] for family in families for sample in family.samples}


def test_the_page_about_monitoring_has_the_same_metrics(seen: Seen) -> None:
    seen.metrics.started(ID, "mine")
    seen.metrics.batch(ID, "mine", MicroBatch.of(progress()))
    assert exported(seen.registry.collect()) == table("spark")
