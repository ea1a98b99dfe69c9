"""The output of the comparison: tables, the chart, and how much is measured."""

import time
from xml.etree import ElementTree

import pytest

from benchmarks.compare import Result, chart, medians, ratio_table, until
from benchmarks.peers import LEVELS, Level, NatsSubject, Subject, dated
from benchmarks.records import Ratio


def result(
    subject: str,
    rate: float,
    cpu_us: float,
    round_: int = 0,
    own: float = 0.5,
    level: Level = "none",
) -> Result:
    return Result(
        subject=subject,
        level=level,
        pipeline=16,
        round=round_,
        jobs=1000,
        seconds=1000 / rate,
        cpu=cpu_us / 1000,
        own_cpu=own * 1000 / rate,
        p50=0.001,
        p99=0.002,
        p999=0.003,
    )


def rows(text: str) -> list[dict[str, str]]:
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()]
    titles, _, *found = lines
    # "(range)" follows each of the two ratios.
    titles = [
        f"{titles[at - 1]} {title}" if title == "(range)" else title
        for at, title in enumerate(titles)
    ]
    return [dict(zip(titles, row, strict=True)) for row in found]


def test_ratios_are_those_of_our_node_to_the_other_within_a_round() -> None:
    found = []
    for number, (ours, theirs) in enumerate([(2000, 1000), (3000, 1000), (1000, 2000)]):
        found.append(result("disque", ours, 10.0, number))
        found.append(result("beanstalkd", theirs, 40.0, number))
    ours_row, theirs_row = rows(ratio_table(found))
    assert ours_row["rate ratio"] == ours_row["CPU ratio"] == "**1.00**"
    assert theirs_row["server"] == "beanstalkd"
    assert theirs_row["synced"] == "none"
    assert theirs_row["jobs/s"] == "1,000"
    assert theirs_row["rate ratio"] == "**2.00**"
    assert theirs_row["rate ratio (range)"] == "0.50-3.00"
    assert theirs_row["CPU µs a job"] == "40.0"
    assert theirs_row["CPU ratio"] == "**0.25**"
    assert theirs_row["p50 / p99 ms"] == "1.00 / 2.00"


def test_a_rate_that_the_generator_limits_is_marked() -> None:
    found = [result("disque", 1000, 1.0), result("list", 9000, 1.0, own=0.95)]
    assert [row["jobs/s"] for row in rows(ratio_table(found))] == ["1,000", "9,000+"]


def test_a_server_that_promises_more_is_marked() -> None:
    levels: list[Level] = ["everysec", "always"]
    found = [result("rabbitmq", 1000, 1.0, level=one) for one in levels]
    names = [row["server"] for row in rows(ratio_table(found))]
    assert names == ["RabbitMQ (stronger)", "RabbitMQ"]


class OldNats(NatsSubject):
    def version(self) -> str:
        return "2.9.10"


class NewNats(NatsSubject):
    def version(self) -> str:
        return "2.10.4"


@pytest.mark.parametrize(
    ("subject", "lacking", "weaker"), [(OldNats(), ["always"], ["everysec"]), (NewNats(), [], [])]
)
def test_jetstream_is_measured_at_the_levels_that_its_version_has(
    subject: Subject, lacking: list[str], weaker: list[str]
) -> None:
    assert [level for level in LEVELS if subject.lacks(level)] == lacking
    assert [level for level in LEVELS if subject.differs(level) == "weaker"] == weaker


def test_versions_tell_their_year_if_it_is_known() -> None:
    assert dated("nats-server", "2.9.10") == "2.9.10 (of 2022)"
    assert dated("rabbitmq-server", "9.9.1") == "9.9.1"
    assert dated("", "0.2.0") == "0.2.0"


def test_a_bar_is_as_long_as_its_figure() -> None:
    found = [result("disque", 1000, 20.0), result("list", 4000, 5.0), result("streams", 2000, 10.0)]
    text = chart(found, "Bars")
    space = {"svg": "http://www.w3.org/2000/svg"}
    _, *bars = ElementTree.fromstring(text).findall("svg:rect", space)
    widths = [float(bar.attrib["width"]) for bar in bars]
    longest = max(widths)
    assert [width / longest for width in widths] == pytest.approx(
        [0.25, 1.0, 0.5, 1.0, 0.25, 0.5], abs=0.01
    )
    # Ours is the only one in its colour.
    colors = [bar.attrib["fill"] for bar in bars]
    assert [colors.count(color) for color in colors] == [2, 4, 4, 2, 4, 4]


def test_a_chart_has_all_names_and_settings() -> None:
    levels: list[Level] = ["none", "always"]
    found = [result(one, 1000, 20.0, level=level) for level in levels for one in ("disque", "list")]
    texts = [one.text for one in ElementTree.fromstring(chart(found, "Bars")).iter()]
    assert texts.count("disque-trio") == texts.count("Redis list") == 4
    assert "Synced: every write. Pipelined by 16" in texts


def test_a_measurement_ends_with_its_time_but_not_before_the_least_is_done() -> None:
    batches = [[b"%d" % number] for number in range(10)]
    past, future = time.perf_counter() - 1, time.perf_counter() + 1000
    assert list(until(past, 4, batches)) == batches[:4]
    assert list(until(future, 4, batches)) == batches


def test_our_node_stands_beside_each_other_server_in_each_setting() -> None:
    found = []
    for level in ("none", "everysec"):
        found.append(result("disque", 2000, 10, level=level))
        found.append(result("list", 1000, 40, level=level))
    found.append(result("rabbitmq", 4000, 5, level="everysec"))
    none, every = "synced: none, pipelined by 16", "synced: every second, pipelined by 16"
    assert medians(found) == [
        Ratio(none, "Redis list", 0.25, 2.0),
        Ratio(every, "Redis list", 0.25, 2.0),
        Ratio(every, "RabbitMQ (stronger)", 2.0, 0.5),
    ]
