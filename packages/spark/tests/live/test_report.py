"""The report of an audit: the numbers agree with the tables, and the page is self-contained."""

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import NoReturn
from zoneinfo import ZoneInfo

import pytest
from selenium.webdriver import ActionChains

from disque_spark.audit.clients import DID
from disque_spark.audit.engine import LocalEngine
from disque_spark.audit.lacks import DROPPED, NODE, Lack
from disque_spark.audit.run import audit
from disque_spark.audit.store import StoreError
from disque_spark.pipeline import main
from disque_spark.report import Json, make_report, write_report
from disque_spark.report.page import page
from disque_spark.report.series import RATES
from disque_spark.report.whole import GROUPS, headline
from packages.console.tests.support.browser import WIDTHS, Browser, browser, faults, faults_here
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
def numbers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Json]:
    directory = tmp_path_factory.mktemp("report")
    generate(directory / "log", 5_000, anomalies=3, seed=2)
    audit(LocalEngine(), [str(directory / "log")], directory / "audit")
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


def test_the_command_says_what_became_of_the_jobs_without_spark(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    generate(tmp_path / "log", 500, anomalies=0, skew=0)
    audit(LocalEngine(), [str(tmp_path / "log")], tmp_path / "audit")

    def no_spark(options: object) -> NoReturn:
        raise AssertionError("a report needs no session")

    assert main(["report", str(tmp_path / "audit")], no_spark) == 0
    sentence, page, file = capsys.readouterr().out.splitlines()
    numbers = json.loads(Path(file).read_text())
    assert sentence == numbers["headline"] == headline(numbers["whole"])
    assert re.match(r"\d+(\.\d)? % of 58 jobs done", sentence)
    assert f"<p class=headline>{sentence}</p>" in Path(page).read_text()


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
    assert text.count("<figure id=plot-") == 6
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
    changed.update(first=1_795_290_000_000, last=1_795_290_065_000)
    changed["lacks"] = [Lack(DROPPED, amount=7)._asdict()]
    text = page(changed)
    assert "<title>Disque audit, 2026-11-21 19:40:00 to 2026-11-21 19:41:05 UTC</title>" in text
    assert text.index("% of ") < text.index("7 events are missing") < text.index("<h2")
    assert text.index("2 jobs were never delivered before they expired") < text.index("<h2")
    assert text.index("Not judged:") < text.index("<h2")
    assert "No job was lost" not in text
    changed["reasons"]["expired-undelivered"] = {}
    assert "No job was lost" not in page(changed)
    changed["lacks"] = []
    assert "No job was lost" in page(changed)
    changed["reasons"]["not-requeued"] = {"": 1}
    text = page(changed)
    assert "1 job was delivered, not acknowledged, and not queued again" in text
    changed["reasons"]["not-requeued"] = {}
    changed["lacks"] = [Lack(NODE, "d" * 40)._asdict()]
    assert "No job was lost" not in page(changed)
    assert "d" * 40 in page(changed)


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


def test_an_audit_without_jobs_has_a_report(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.mkdir()
    (log / "events-aaaaaaaa-1780000000000-0.jsonl").touch()
    audit(LocalEngine(), [str(log)], tmp_path / "audit")
    numbers = make_report(tmp_path / "audit")
    write_report(numbers, tmp_path / "report.html", None)
    assert numbers["jobs"] == {"jobs": 0}
    assert numbers["whole"]["jobs"] == 0
    assert set(Page((tmp_path / "report.html").read_text()).opened) <= MAY_STAY_OPEN
    with browser(tmp_path) as chrome:
        assert faults(chrome, (tmp_path / "report.html").as_uri()) == []
        assert "The logs have no jobs." in chrome.text("body")


def test_without_an_audit_there_is_no_report(tmp_path: Path) -> None:
    with pytest.raises(StoreError):
        make_report(tmp_path)


# ---- in a browser ------------------------------------------------------------------------------

SMALLEST = """
    return Math.min(...[...document.querySelectorAll("figure svg text")].map(
        (text) => parseFloat(getComputedStyle(text).fontSize) * text.getScreenCTM().a))
"""
CUT_OFF = """
    const wide = document.documentElement.clientWidth + 1;
    return [...document.querySelectorAll("td, th, p, figure, summary")].filter(
        (one) => one.offsetParent && one.getBoundingClientRect().right > wide).length
"""
OUTSIDE = """
    return [...document.querySelectorAll("figure[id] > svg")].flatMap((svg) => {
        const box = svg.getBoundingClientRect();
        return [...svg.children].filter((one) => one.tagName === "text").filter((one) => {
            const { left, right, bottom } = one.getBoundingClientRect();
            return left < box.left - 1 || right > box.right + 1 || bottom > box.bottom + 3;
        }).map((one) => one.textContent);
    })
"""
KEY = """
    document.querySelector("#plot-rates svg").dispatchEvent(
        new KeyboardEvent("keydown", { key: arguments[0], bubbles: true }))
"""


@pytest.fixture
def shown(numbers: dict[str, Json], tmp_path: Path) -> Iterator[Browser]:
    """The page in a browser whose user is in Berlin."""
    write_report(numbers, tmp_path / "report.html", None)
    with browser(tmp_path) as chrome:
        zone = {"timezoneId": "Europe/Berlin"}
        chrome.driver.execute_cdp_cmd("Emulation.setTimezoneOverride", zone)
        chrome.look()
        chrome.open((tmp_path / "report.html").as_uri())
        chrome.run("for (const one of document.querySelectorAll('details.more')) one.open = true")
        yield chrome


def test_nothing_is_cut_off_or_tiny_on_any_screen(shown: Browser) -> None:
    for width in WIDTHS:
        assert faults_here(shown, width) == []
        assert shown.run(CUT_OFF) == 0, width
        assert shown.run(SMALLEST) >= 11, width
        assert shown.run(OUTSIDE) == [], width


def test_a_reader_zooms_by_button_key_and_mouse(shown: Browser) -> None:
    assert shown.text("#period") == "the whole period"
    whole = shown.run("return document.querySelector('#plot-rates svg').outerHTML")
    shown.run("document.querySelector('[data-zoom=in]').click()")
    first = shown.text("#period")
    assert " to " in first
    shown.run(KEY, "+")
    assert shown.text("#period") != first
    shown.run(KEY, "-")
    shown.run(KEY, "0")
    assert shown.text("#period") == "the whole period"
    assert shown.run("return document.querySelector('#plot-rates svg').outerHTML") == whole
    plot = shown.find("#plot-rates svg")
    shown.run("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", plot)
    ActionChains(shown.driver).move_to_element(plot).click_and_hold().move_by_offset(
        120, 0
    ).release().perform()
    assert " to " in shown.text("#period")
    shown.run("document.querySelector('[data-zoom=busiest]').click()")
    assert shown.run(OUTSIDE) == []
    assert shown.complaints() == []


def test_all_times_are_in_the_readers_zone_which_is_named_once(
    shown: Browser, numbers: dict[str, Json]
) -> None:
    first = datetime.fromtimestamp(numbers["first"] / 1000, ZoneInfo("Europe/Berlin"))
    assert f"{first:%Y-%m-%d %H:%M}" in shown.text("h1")
    assert shown.text("body").count("Europe/Berlin") == 1
    shown.run("document.getElementById('zone').click()")
    assert f"{first.astimezone(UTC):%Y-%m-%d %H:%M}" in shown.text("h1")
    assert "Europe/Berlin" not in shown.text("body")


def test_the_plots_of_a_queue_and_the_history_of_a_job_are_shown(shown: Browser) -> None:
    before = shown.run("return document.querySelector('#plot-depth svg').outerHTML")
    shown.run("document.querySelector('[data-queue] button').click()")
    assert shown.text(".whose").startswith("queue ")
    assert shown.run("return document.querySelector('#plot-depth svg').outerHTML") != before
    shown.run("document.querySelector('td details').open = true")
    shown.find("td details svg.life")
