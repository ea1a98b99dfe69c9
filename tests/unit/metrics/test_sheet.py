"""A metrics page equals that of prometheus-client, and its parsers accept it."""

import gzip
import math
import random

import pytest
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as read_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families as read_text

from disque_trio.histogram import MS, NS, STEP_TIMES, Histogram
from disque_trio.metrics.formats import Format, Formats, SystemMetrics, add_metrics
from disque_trio.metrics.scrapes import GZIP_HEAD, Body, write_page
from disque_trio.metrics.sheet import BLOCK, Sheet, number, pairs, raw, read_raw

OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


def page(sheet: Sheet, form: Format, zipped: bool = False) -> bytes:
    body = Body(zipped)
    for _ in write_page(sheet, form, body.add):
        pass
    body.end(True)
    return b"".join(([GZIP_HEAD] if zipped else []) + body.chunks)


def example() -> Sheet:
    histogram = Histogram((5, 1_000), MS)
    for value in (0, 5, 6, 1_000, 1_001):
        histogram.observe(value)
    sheet = Sheet()
    sheet.gauge("disque_up", 'A "text" with \\ in it', 1)
    sheet.counter("disque_things_total", "Things", 3)
    sheet.histogram("disque_empty_seconds", "Nothing yet")
    sheet.histogram("disque_wait_seconds", "Waited", histogram)
    sheet.histogram("disque_turns_seconds", "Turns", Histogram(STEP_TIMES, NS))
    by_queue = sheet.histogram("disque_job_seconds", "By queue")
    jobs = sheet.gauge("disque_queue_jobs", "Jobs")
    for queue in ("mail", 'a"b', "c\nd"):
        by_queue.add_histogram(histogram, pairs({"queue": queue}))
        jobs.add(0.5, pairs({"queue": queue, "state": "dead"}))
    return sheet


def check(families: list[Metric]) -> None:
    found = {family.name: family for family in families}
    assert found["disque_up"].documentation == 'A "text" with \\ in it'
    assert [sample.value for sample in found["disque_things"].samples] == [3]
    wait = {(s.name, s.labels.get("le")): s.value for s in found["disque_wait_seconds"].samples}
    assert wait == {
        ("disque_wait_seconds_bucket", "0.005"): 2,
        ("disque_wait_seconds_bucket", "1.0"): 4,
        ("disque_wait_seconds_bucket", "+Inf"): 5,
        ("disque_wait_seconds_count", None): 5,
        ("disque_wait_seconds_sum", None): 2.012,
    }
    queues = [sample.labels["queue"] for sample in found["disque_queue_jobs"].samples]
    assert queues == ["mail", 'a"b', "c\nd"]
    assert found["disque_empty_seconds"].type == "histogram"


def test_the_parsers_of_prometheus_accept_both_formats() -> None:
    formats = Formats()
    text, openmetrics = formats.of("text/plain"), formats.of(OPENMETRICS)
    check(list(read_text(page(example(), text).decode())))
    assert page(example(), openmetrics).endswith(b"# EOF\n")
    check(list(read_openmetrics(page(example(), openmetrics).decode())))
    assert page(Sheet(), openmetrics) == b"# EOF\n"
    assert "openmetrics" in openmetrics.content_type


def test_prometheus_client_writes_the_same_numbers() -> None:
    histogram = Histogram(STEP_TIMES, NS)
    for value in (1, 10_000, 10_001, 3_000_000, 7_000_000_000):
        histogram.observe(value)
    sheet = Sheet()
    sheet.histogram("x_seconds", "Text", histogram)
    [ours] = read_text(page(sheet, Formats().of("")).decode())
    bounds = [*(bound / NS for bound in STEP_TIMES), math.inf]
    counts = [sum(histogram.counts[: n + 1]) for n in range(len(bounds))]
    theirs = HistogramMetricFamily(
        "x_seconds",
        "Text",
        buckets=[(number(b), c) for b, c in zip(bounds, counts, strict=True)],
        sum_value=histogram.sum / NS,
    )
    assert sorted(
        (s.name, s.labels.get("le"), s.value) for s in ours.samples if "le" in s.labels
    ) == sorted((s.name, s.labels.get("le"), s.value) for s in theirs.samples if "le" in s.labels)


@pytest.mark.parametrize(
    ("accept", "open"),
    [
        ("", False),
        ("*/*", False),
        (OPENMETRICS, True),
        ("application/openmetrics-text", True),
        ("application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.2", True),
        ("text/html", False),
        (";;;,,,q=;version", False),
        ("application/openmetrics-text;q=x", True),
        (1_000 * "a/b;q=0.1,", False),
    ],
)
def test_openmetrics_is_sent_on_request(accept: str, open: bool) -> None:
    assert ("openmetrics" in Formats().of(accept).content_type) is open


PIECES = (
    "application/openmetrics-text", "text/plain", "*/*", ";", "; ", ",", ", ", "version=1.0.0",
    "version=0.0.1", "version=", "version=9.9", "version=1..2", "version=1.0.0a", "q=0.5", "q=x",
    "escaping=underscores", "escaping=values", "escaping=x", "escaping=", "=", "\xff",
)  # fmt: skip


def test_whatever_a_client_accepts_it_gets_one_of_a_few_formats() -> None:
    rng = random.Random(0)
    formats = Formats()
    found = set()
    for _ in range(10_000):
        accept = "".join(rng.choices(PIECES, k=rng.randrange(9)))
        found.add(formats.of(accept).content_type)
    assert 3 < len(found) <= 16
    for version in range(100):
        found.add(formats.of(f"application/openmetrics-text; version=9.{version}").content_type)
    assert len(found) <= 16
    formats.of("text/plain; version=")  # prometheus-client fails


def test_a_page_may_be_compressed() -> None:
    form = Formats().of("")
    sheet = example()
    for name in range(3_000):
        sheet.gauge(f"x{name}", "A gauge with a long text that is the same for all of them", name)
    assert gzip.decompress(page(sheet, form, zipped=True)) == page(sheet, form)


def test_numbers_are_formatted_like_those_of_prometheus() -> None:
    assert [number(x) for x in (1, 0.5, math.nan, math.inf, -math.inf, 1e-05, 1e21)] == [
        "1", "0.5", "NaN", "+Inf", "-Inf", "1e-05", "1e+21",
    ]  # fmt: skip


def test_the_process_has_metrics() -> None:
    sheet = Sheet()
    add_metrics(sheet, SystemMetrics().read())
    names = {family.name for family in read_text(page(sheet, Formats().of("")).decode())}
    assert {"process_cpu_seconds", "process_open_fds"} <= names


def test_common_labels_are_in_every_sample() -> None:
    sheet = Sheet('process="1"')
    sheet.gauge("plain", "A gauge.", 1)
    sheet.counter("counted_total", "A counter.").add(2, 'queue="q"')
    assert [family.blocks() for family in sheet.families] == [
        [b'plain{process="1"} 1\n'],
        [b'counted_total{process="1",queue="q"} 2\n'],
    ]


def test_raw_families_are_read_as_they_were() -> None:
    sheet = Sheet()
    sheet.gauge("empty", "Without samples.")
    many = sheet.counter("many_total", "Help, with spaces.")
    for step in range(3000):
        many.add(step, f'step="{step}"')
    found = read_raw(b"".join(raw(sheet.families)))
    assert [(one.name, one.kind, one.text) for one in found] == [
        ("empty", "gauge", "Without samples."),
        ("many_total", "counter", "Help, with spaces."),
    ]
    assert b"".join(found[1].blocks()) == b"".join(many.blocks())
    assert max(map(len, found[1].blocks())) <= BLOCK


@pytest.mark.parametrize("page", [b"", b"half", b"\0a gauge x\n", b"\0a what x\n\0"])
def test_raw_families_that_are_not_whole_are_an_error(page: bytes) -> None:
    with pytest.raises(ValueError, match="not"):
        read_raw(page)
