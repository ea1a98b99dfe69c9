"""What a watch reports to Prometheus."""

import urllib.request
from collections import Counter
from pathlib import Path

from prometheus_client import CollectorRegistry
from prometheus_client.openmetrics.exposition import generate_latest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from disque_spark.audit.lacks import NODE, SEGMENT, Lack
from disque_spark.audit.result import Result
from disque_spark.watch.metrics import WatchMetrics, serving
from tests.support.harness import free_port
from tests.support.monitoring import exported, table


def result(findings: Counter[str], events: int = 70) -> Result:
    return Result(
        path=Path("x"),
        segments=1,
        events=events,
        jobs=9,
        dropped=0,
        unknown=0,
        damaged=0,
        findings=findings,
        lacks=[Lack(NODE, "a"), Lack(SEGMENT, segment="b", amount=5)],
        last=1_500,
    )


def watched() -> CollectorRegistry:
    """Return the registry of a watch that has looked twice."""
    registry = CollectorRegistry()
    metrics = WatchMetrics(registry, lambda: 1007.0)
    metrics.told("lines", None, 0)
    metrics.told("webhook", "webhook: 500", 12)
    metrics.looked(result(Counter({"never-delivered": 3, "poison": 1})), 1000.0)
    metrics.failed("disk full", 1.0)
    metrics.told("webhook", None, 2)
    metrics.looked(result(Counter({"poison": 1}), 5), 1005.0)
    return registry


def test_looks_findings_and_notices_are_counted() -> None:
    value = watched().get_sample_value
    assert value("disque_watch_look_seconds_count") == 2
    assert value("disque_watch_look_seconds_sum") == 9
    assert value("disque_watch_failures_total") == 1
    assert value("disque_watch_events_total") == 75
    assert value("disque_watch_read_until_timestamp_seconds") == 1005
    assert value("disque_watch_last_event_timestamp_seconds") == 1.5
    assert value("disque_watch_missing_logs") == 2
    # What no longer applies is 0, not the old value.
    assert value("disque_watch_findings", {"kind": "never-delivered"}) == 0
    assert value("disque_watch_findings", {"kind": "poison"}) == 1
    assert value("disque_watch_serious_findings") == 0
    assert value("disque_watch_notices_total", {"receiver": "webhook"}) == 1
    assert value("disque_watch_notices_failed_total", {"receiver": "webhook"}) == 1
    assert value("disque_watch_notices_failed_total", {"receiver": "lines"}) == 0
    assert value("disque_watch_untold_rows", {"receiver": "webhook"}) == 2


def test_a_watch_that_has_just_begun_is_not_behind() -> None:
    registry = CollectorRegistry()
    WatchMetrics(registry, lambda: 1007.0)
    assert registry.get_sample_value("disque_watch_read_until_timestamp_seconds") == 1007


def test_the_page_is_as_documented() -> None:
    text = generate_latest(watched()).decode()
    assert exported(text_string_to_metric_families(text)) == table("watch")


def test_they_are_served() -> None:
    port = free_port()
    with serving("127.0.0.1", port) as metrics:
        metrics.failed("disk full", 1.0)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as page:
            assert b"disque_watch_failures_total 1.0" in page.read()
