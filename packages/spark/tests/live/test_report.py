"""The report of an audit: the numbers agree with the tables, and the page is self-contained."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from disque_spark.audit.clients import DID
from disque_spark.audit.run import audit
from disque_spark.audit.store import StoreError
from disque_spark.report import Json, make_report, write_report
from disque_spark.report.page import page
from disque_spark.report.plots import WIDTH, Line, bar_plot, line_plot
from disque_spark.report.series import RATES
from disque_spark.report.whole import GROUPS
from packages.spark.tests.support.planted_log import generate

pytestmark = pytest.mark.timeout(400)

VOID = {"meta", "input"}
MAY_STAY_OPEN = {"html", "p", "li", "tr", "td", "th", "option"}


class Page(HTMLParser):
    """Checks that every element is closed, and collects the visible text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.opened: list[str] = []
        self.texts: list[str] = []
        self.counts: dict[str, int] = {}
        self.links: list[str] = []
        self.styles: list[str] = []
        self.scripts: list[dict[str, str | None]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.counts[tag] = self.counts.get(tag, 0) + 1
        self.links += [value or "" for name, value in attrs if name in ("src", "href")]
        self.styles += [name for name, _ in attrs if name == "style" or name.startswith("on")]
        if tag == "script":
            self.scripts.append(dict(attrs))
        if tag not in VOID:
            self.opened.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.counts[tag] = self.counts.get(tag, 0) + 1

    def handle_endtag(self, tag: str) -> None:
        while self.opened[-1] != tag:
            assert self.opened.pop() in MAY_STAY_OPEN, tag
        self.opened.pop()

    def handle_data(self, data: str) -> None:
        if self.opened[-1:] != ["script"]:
            self.texts.append(data)


@pytest.fixture(scope="module")
def numbers(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Json]:
    directory = tmp_path_factory.mktemp("report")
    generate(directory / "log", 5_000, anomalies=3, seed=2)
    audit(spark, [str(directory / "log")], directory / "audit")
    return make_report(directory / "audit")


def test_the_numbers_agree_with_each_other(numbers: dict[str, Json]) -> None:
    jobs = numbers["jobs"]["jobs"]
    assert jobs > 500
    assert sum(count for _, count in numbers["deliveries"]) == jobs
    assert sum(row["jobs"] for row in numbers["queues"]) == jobs
    rates = [sum(row[place] for row in numbers["rates"]) for place in range(1, 7)]
    by_name = dict(zip(RATES, rates, strict=True))
    assert by_name["delivered"] == sum(row["deliveries"] for row in numbers["queues"])
    assert by_name["nacked"] == sum(row["nacks"] for row in numbers["queues"])
    assert by_name["acked"] == numbers["jobs"]["acked"]
    assert by_name["added"] <= jobs
    on_nodes = sum(row.get("delivered", 0) for row in numbers["by_node"])
    assert on_nodes == sum(did[DID.index("delivered")] for did in numbers["clients"].values())
    assert on_nodes == by_name["delivered"]
    columns = numbers["series"]["columns"]
    for queue in numbers["queues"]:
        steps = numbers["series"]["queues"][queue["queue"]]
        place = columns.index("delivered") + 1
        assert sum(step[place] or 0 for step in steps) == queue["deliveries"]
        deepest = max(step[columns.index("depth") + 1] or 0 for step in steps)
        assert deepest <= queue["most_depth"]
    found = {found["job"] for found in numbers["findings_shown"] if found["job"]}
    assert numbers["finding_jobs"][""] == len(found)
    assert found <= set(numbers["lives"])
    worst = numbers["worst"]["nacks_said"]
    assert [row["nacks_said"] for row in worst[:3]] == [6, 6, 6]
    assert numbers["lives"][worst[0]["id"]]["count"] > 20
    groups = [numbers["whole"][name] for name in GROUPS]
    assert sum(groups) == numbers["whole"]["jobs"] == jobs
    assert numbers["findings"]["never-delivered"] == 6
    assert sum(numbers["findings"].values()) == len(numbers["findings_shown"])
    ends = [
        numbers["jobs"][how]
        for how in ("acked", "dead", "cancelled", "expired", "deleted", "evicted", "open")
    ]
    assert sum(ends) == jobs


def test_percentiles_are_in_order_and_in_time(numbers: dict[str, Json]) -> None:
    times = [point[0] for point in numbers["wait"]]
    assert times == sorted(times)
    assert all(p50 <= p95 <= p99 for _, p50, p95, p99 in numbers["wait"])
    assert numbers["first"] - numbers["step"] < times[0] <= times[-1] <= numbers["last"]


def test_the_page_is_well_formed_and_loads_nothing(
    numbers: dict[str, Json], tmp_path: Path
) -> None:
    write_report(numbers, tmp_path / "new" / "report.html", tmp_path / "report.json")
    text = (tmp_path / "new" / "report.html").read_text()
    parsed = Page(text)
    assert set(parsed.opened) <= MAY_STAY_OPEN
    assert [link for link in parsed.links if link[0] != "#"] == [str(tmp_path / "report.json")]
    assert all(f"id={link[1:]}>" in text for link in parsed.links if link[0] == "#")
    named = text.replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert not re.search(r"url\(|@import|https?:|\son\w+=", named)
    assert parsed.styles == []
    assert text.count("<figure id=") == 5
    shown = " ".join(parsed.texts)
    for found in numbers["findings_shown"]:
        assert (found["job"] or "") in shown
    assert json.loads((tmp_path / "report.json").read_text()) == json.loads(json.dumps(numbers))


def test_names_of_queues_are_only_text_on_the_page(
    numbers: dict[str, Json], tmp_path: Path
) -> None:
    evil = "</script><script>alert('&\"\\xff')</script><!--"
    queue = numbers["queues"][0]["queue"]
    changed = json.loads(json.dumps(numbers).replace(json.dumps(queue), json.dumps(evil)))
    write_report(changed, tmp_path / "report.html", None)
    text = (tmp_path / "report.html").read_text()
    parsed = Page(text)
    assert parsed.scripts == [{"type": "application/json", "id": "data"}, {}]
    assert evil in "".join(parsed.texts)
    assert "alert(" not in text.split("<script>")[-1]
    data = re.search(r"id=data>(.*?)</script>", text)
    assert data is not None
    assert evil in dict(json.loads(data[1])["series"]["queues"])


def test_the_most_important_facts_come_first(numbers: dict[str, Json]) -> None:
    changed = json.loads(json.dumps(numbers))
    changed["reasons"] = {kind: {} for kind in changed["reasons"]}
    changed["reasons"]["expired-undelivered"] = {"": 2}
    changed.update(first=1_795_290_000_000, last=1_795_290_065_000, dropped=7)
    text = page(changed)
    assert "2026-11-21 19:40:00 to 19:41:05 UTC</h1>" in text
    assert text.index("7 events are missing") < text.index("<h2")
    assert text.index("2 jobs were never delivered before they expired") < text.index("<h2")
    assert text.index("Not judged:") < text.index("<h2")
    assert "No job was lost" not in text
    changed["reasons"]["expired-undelivered"] = {}
    assert "No job was lost" not in page(changed)
    changed.update(dropped=0, damaged=0, unknown=0, silences={})
    assert "No job was lost" in page(changed)
    changed["reasons"]["not-requeued"] = {"": 1}
    text = page(changed)
    assert "1 job was delivered, not acknowledged, and not queued again" in text
    changed["reasons"]["not-requeued"] = {}
    changed["missing_nodes"] = ["d" * 40]
    assert "No job was lost" not in page(changed)
    assert "d" * 40 in page(changed)


def test_a_job_that_waits_or_of_which_the_log_is_silent_is_not_called_lost(
    numbers: dict[str, Json],
) -> None:
    changed = json.loads(json.dumps(numbers))
    changed["reasons"] = {kind: {} for kind in changed["reasons"]}
    changed["reasons"]["never-delivered"] = {"held": 3}
    text = page(changed)
    assert "verdict bad" not in text
    assert "3 jobs wait" in text
    changed["reasons"]["never-delivered"] = {"held": 3, "log-gap": 1, "log-end": 1}
    text = page(changed)
    assert "No job was lost" not in text
    assert "never delivered.</b>" not in text
    assert "For 2 jobs, the logs do not say" in text


def test_many_queues_and_long_names_are_cut_and_the_reader_is_told(
    numbers: dict[str, Json],
) -> None:
    changed = json.loads(json.dumps(numbers))
    row = changed["queues"][0]
    names = ["x" * 300 + "end", *(f"queue {n}" for n in range(299))]
    changed["queues"] = [{**row, "queue": name} for name in names]
    changed["queues_in_all"] = 2000
    changed["depth"] = dict.fromkeys(names[:6], numbers["depth"][row["queue"]])
    text = page(changed)
    assert "the 6 deepest of 2,000 queues" in text
    assert "1,700 of 2,000 queues are not shown" in text
    assert "The filter finds only what is on this page" in text
    shown = "".join(Page(text).texts)
    assert "x" * 30 in shown
    assert "x" * 100 not in shown
    assert f"title='{names[0]}'" in text


def test_depth_stands_where_its_minute_ends(numbers: dict[str, Json]) -> None:
    first = 1_795_290_000_000
    changed = json.loads(json.dumps(numbers))
    changed.update(first=first, last=first + 120_000, step=60_000, wait=[], processing=[])
    changed["rates"] = []
    changed["depth"] = {"q": [[first, 10], [first + 60_000, 0]]}
    path = re.search(r'<path d="([^"]+)" class="line c0"', page(changed))
    assert path is not None
    places = [(float(x), float(y)) for x, y in re.findall(r"[ML]([\d.]+) ([\d.]+)", path[1])]
    left, middle, right = 64.0, 404.0, 744.0
    assert [x for x, _ in places] == [left, middle, right]
    assert places[1][1] < places[0][1] == places[2][1]


def test_an_audit_without_jobs_has_a_report(spark: SparkSession, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.mkdir()
    (log / "events-aaaaaaaa-1780000000000-0.jsonl").touch()
    audit(spark, [str(log)], tmp_path / "audit")
    numbers = make_report(tmp_path / "audit")
    write_report(numbers, tmp_path / "report.html", None)
    assert numbers["jobs"] == {"jobs": 0}
    assert numbers["whole"]["jobs"] == 0
    assert set(Page((tmp_path / "report.html").read_text()).opened) <= MAY_STAY_OPEN


def test_without_an_audit_there_is_no_report(tmp_path: Path) -> None:
    with pytest.raises(StoreError):
        make_report(tmp_path)


# ---- plots, without Spark ----------------------------------------------------------------------


def test_all_points_of_a_line_are_inside_of_the_plot() -> None:
    points: list[tuple[int, float | None]] = [(n * 977, float(n**3 + 1)) for n in range(50)]
    for log in (False, True):
        text = line_plot([Line("x", points)], "t", log=log, times=log)
        path = re.search(r'<path d="([^"]+)"', text)
        assert path is not None
        places = re.findall(r"[ML]([\d.]+) ([\d.]+)", path[1])
        assert len(places) == len(points)
        assert all(64 <= float(x) <= 744 and 0 <= float(y) <= 230 for x, y in places)


@pytest.mark.parametrize("seconds", [1, 20, 59, 103, 3600, 90_000, 40 * 86_400])
def test_no_label_sticks_out_of_the_picture(seconds: int) -> None:
    first = 1_795_290_000_123
    points = [(first, 1.0), (first + seconds * 1000, 10.0**9)]
    text = line_plot([Line("x", list(points))], "t")
    labels = re.findall(r'<text x="([\d.]+)" y="[\d.]+" text-anchor="(\w+)"[^>]*>([^<]+)', text)
    assert len(labels) >= 4
    for place, anchor, label in labels:
        width = 6.5 * len(label)
        start = float(place) - {"start": 0, "middle": width / 2, "end": width}[anchor]
        assert start >= 0, label
        assert start + width <= WIDTH, label


def test_a_gap_breaks_a_line_and_a_lone_point_is_a_dot() -> None:
    text = line_plot([Line("x", [(1000, 1.0), (2000, 2.0), (3000, None), (4000, 3.0)])], "t")
    path = re.search(r'<path d="([^"]+)"', text)
    assert path is not None
    assert path[1].count("M") == 2
    assert text.count("<circle") == 3  # with so few points, all are marked
    points: list[tuple[int, float | None]] = [(n * 1000, 1.0) for n in range(99)]
    text = line_plot([Line("x", [*points, (99_000, None), (100_000, 3.0)])], "t")
    assert text.count("<circle") == 1


def test_a_plot_of_one_moment_or_of_nothing_is_drawn() -> None:
    assert "<svg" in line_plot([Line("x", [(5000, 0.0)])], "t", log=True, times=True)
    assert "<svg" not in line_plot([Line("x", [])], "t")
    assert "<svg" not in bar_plot([], "t")
