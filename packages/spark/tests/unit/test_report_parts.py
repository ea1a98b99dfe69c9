"""The report without Spark: what it says about given numbers."""

import json
import re
import shutil
import subprocess
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest

from disque_spark.audit.addresses import addresses_in
from disque_spark.audit.clients import DID, MOST, add_clients, busiest, clients_of
from disque_spark.audit.rules import KINDS
from disque_spark.audit.trace import CODE_BITS, CODES, TIME_SHIFT
from disque_spark.report import verdict
from disque_spark.report.charts import plots
from disque_spark.report.compare import ComparisonError, slowed, summary, totals
from disque_spark.report.found import job, lives
from disque_spark.report.lists import clients, comparison, schedules
from disque_spark.report.lives import SHOWN, Nodes, life_of
from disque_spark.report.markup import HOUR, queue_name
from disque_spark.report.plots import Line, line_plot
from disque_trio import humanize

A = "a" * 40


def event(time: int, node: int, what: str) -> int:
    return time << TIME_SHIFT | node << CODE_BITS | CODES[what]


def report(**queues: int) -> dict[str, object]:
    """Return the numbers of a report that are compared, with the p99 of each queue."""
    rows = [{"queue": name, "jobs": 10, "wait_p99": p99} for name, p99 in queues.items()]
    jobs = {"jobs": len(rows) * 10, "acked": 7, "wait_p50": 5}
    findings = dict.fromkeys(KINDS, 0)
    return {"first": 0, "last": 9, "jobs": jobs, "findings": findings, "queues": rows}


# ---- counts -------------------------------------------------------------------------------------


def test_what_clients_did_is_counted() -> None:
    lines = pa.table(
        {
            "client": ["w", "w", None, "w", "cron:x", "p"],
            "event": ["delivered", "delivered", "delivered", "nacked", "added", "queued"],
            "time": [5, 9, 1, 7, 3, 4],
        }
    )
    found = clients_of(lines)
    assert found == {"w": [0, 2, 0, 1, 0, 5, 9], "cron:x": [1, 0, 0, 0, 0, 3, 3]}
    add_clients(found, {"w": [1, 1, 1, 1, 1, 2, 6]})
    assert found["w"] == [1, 3, 1, 2, 1, 2, 9]


def test_schedules_and_who_hands_back_most_are_remembered() -> None:
    many = {f"w{n}": [0, n, 0, 0, 0, 1, 1] for n in range(2 * MOST)}
    kept = busiest({**many, "cron:x": [1, 0, 0, 0, 0, 1, 1], "bad": [0, 1, 0, 1, 0, 1, 1]})
    assert len(kept) == MOST
    assert {"cron:x", "bad", f"w{2 * MOST - 1}"} <= set(kept)
    assert "w0" not in kept


def test_a_life_has_its_beginning_and_its_end() -> None:
    steps = [event(1000, 0, "added:"), event(1000, 0, "queued:add"), event(1500, 1, "delivered:")]
    life = life_of("q", steps)
    assert life == {
        "queue": "q",
        "start": 1000,
        "count": 3,
        "steps": [[0, 0, "added"], [0, 0, "queued:add"], [500, 1, "delivered"]],
    }
    again = [event(1000 + n, 0, "delivered:") for n in range(500)]
    life = life_of(None, again)
    assert (life["count"], len(life["steps"])) == (500, 2 * SHOWN)
    assert [life["steps"][0][0], life["steps"][-1][0]] == [0, 499]


def test_what_happened_on_each_node_is_counted() -> None:
    jobs = pa.array(
        [[event(1, 0, "added:"), event(2, 1, "delivered:")], [event(9, 1, "delivered:")]]
    )
    counted = Nodes(["one", "two"])
    counted.add(jobs)
    counted.add(jobs)
    assert counted.rows() == [{"node": "one", "added": 2}, {"node": "two", "delivered": 4}]


def test_addresses_are_those_of_nodes_conf() -> None:
    text = f"{A} 10.0.0.1:7711 myself 0 0 0 connected\n{'b' * 40} :0 noaddr\nvars x 1\n"
    text += f"{'c' * 40} ::1:7712@17712 slave\n"
    assert addresses_in(text) == {A: "10.0.0.1:7711", "c" * 40: "[::1]:7712"}


# ---- comparisons --------------------------------------------------------------------------------


def test_slowdowns_are_reported_worst_first() -> None:
    now = report(a=100, b=30, c=5, new=9)
    now["before"] = summary(report(a=50, b=1, c=9))
    assert [queue for queue, _ in slowed(now)] == ["b", "a"]
    (jobs,) = [change for change in totals(now) if change.name == "jobs"]
    assert (jobs.before, jobs.now, jobs.difference) == (30, 40, 10)
    text = comparison(now)
    assert "+50 ms (+100%)" in text
    assert "Queues that the earlier report did not have: <bdi>new</bdi>." in text


@pytest.mark.parametrize("wrong", [{}, [], {"first": 1}, {**report(a=1), "queues": 5}, "text"])
def test_a_file_that_is_not_a_report_is_not_compared(wrong: object) -> None:
    with pytest.raises(ComparisonError):
        summary(wrong)  # type: ignore[arg-type]


# ---- contents -----------------------------------------------------------------------------------


def test_clients_that_hand_back_most_come_first_and_names_are_escaped() -> None:
    did = {"good": [0, 100, 100, 0, 0, 1, 9], "<b>": [0, 10, 2, 5, 0, 1, 9]}
    text = clients({"clients": {**did, "cron:nightly": [3, 0, 0, 0, 0, 1000, 7000]}})
    assert text.index("&lt;b&gt;") < text.index("good")
    assert "<td class=n>3</td></tr>" in text  # neither acknowledged nor handed back
    assert "nightly" not in text
    assert DID[0] == "added"


def test_jobs_added_by_schedules_are_reported() -> None:
    text = schedules({"clients": {"cron:nightly": [4, 0, 0, 0, 0, 1000, 7000], "w": [0] * 7}})
    assert "nightly" in text
    assert "2 s" in text
    assert schedules({"clients": {}}) == ""


def test_lines_at_zero_can_be_told_apart() -> None:
    lines = [Line(f"{n}", [(0, 0.0), (1000, 0.0)]) for n in range(5)]
    text = line_plot(lines, "t")
    paths = {line.split('d="')[1].split('"')[0] for line in text.split("<path ")[1:6]}
    assert len(paths) == 5
    assert all(f'class="line c{n}"' in text for n in range(5))
    assert text.count("<circle") == 10


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no node to run the script with")
def test_the_script_writes_numbers_as_the_page_has_them() -> None:
    script = (Path(verdict.__file__).parent / "page.js").read_text()
    _, begin, rest = script.partition("  // Numbers and durations")
    numbers = [0, 0.25, 7, 9999, 9999.9, 12_345, 99_999, 999_499, 999_999, 4_500_000, 2e9]
    times = [0, 0.4, 7, 999.9, 1500, 9960, 119_900, 245_000, 7_199_000, 12_000_000, 439_200_000]
    written = f"[{numbers}.map(short), {times}.map(duration)]"
    code = f"{begin}{rest.partition('const shortened')[0]}console.log(JSON.stringify({written}))"
    done = subprocess.run(["node", "-e", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [
        [humanize.short(number) for number in numbers],
        [humanize.duration(ms / 1000) for ms in times],
    ]


# ---- size ---------------------------------------------------------------------------------------


def test_a_name_of_64_kb_does_not_make_the_page_large() -> None:
    long = "x" * 65_536
    drawn = {"series": {"queues": {"q": [], long: []}}}
    assert len(queue_name(drawn, long)) < 1000
    assert "data-queue=1" in queue_name(drawn, long)
    assert len(job({"lives": {long: {"steps": []}}}, long, True)) < 200


def test_lives_are_cut_in_the_middle_when_there_are_many() -> None:
    steps = [[n, n % 3, "queued:retry"] for n in range(40)]
    life = {"queue": "q", "start": 7, "count": 100, "steps": steps}
    few = lives({"lives": {"D-1": life}})
    assert few["names"] == ["queued:retry"]
    assert few["jobs"]["D-1"][:5] == [7, 100, 0, 0, 0]
    assert len(few["jobs"]["D-1"]) == 2 + 3 * 40
    many = lives({"lives": {f"D-{n}": life for n in range(1300)}})
    told = many["jobs"]["D-5"]
    assert told[:2] == [7, 100]
    assert told[2] == 0
    assert told[-3] == 39
    assert sum(len(one) - 2 for one in many["jobs"].values()) <= 3 * 15_000


# ---- appearance ---------------------------------------------------------------------------------


@pytest.mark.parametrize("days", [1, 2, 3, 5, 30, 400])
def test_labels_with_a_day_have_room_on_a_small_screen(days: int) -> None:
    first = 1_795_294_800_000
    text = line_plot([Line("x", [(first, 1.0), (first + days * 24 * HOUR, 2.0)])], "t")
    known = re.findall(r'<text x="([\d.]+)"[^>]* data-f="[^"]+">([^<]+)', text)
    places = [float(x) for x, _ in known]
    wide = 9.5 * max(len(label) for _, label in known)  # as in the page's style for 390 pixels
    assert all(b - a > wide for a, b in pairwise(places[:-1]))


def test_events_that_never_happened_have_no_plot() -> None:
    quiet = [[n * 1000, 5, 5, 5, 0, 0, 0] for n in range(9)]
    numbers = {"step": 1000, "rates": quiet, "wait": [], "processing": [], "depth": {}}
    numbers |= {"first": 0, "last": 9000, "queues": []}
    rates, trouble, *_ = (plot.markup((0, 9000)) for plot in plots(numbers))
    assert "<svg" in rates
    assert "<svg" not in trouble
    quiet[3][4] = 1
    assert "<svg" in plots(numbers)[1].markup((0, 9000))


def test_problems_are_in_one_box_one_per_line() -> None:
    numbers = {
        "events": 1,
        "nodes": [A],
        "segments": 2,
        "dropped": 0,
        "unknown": 0,
        "missing_nodes": [],
        "damaged": 0,
        "missing_segments": {},
        "gone": [],
        "silences": {},
        "reasons": {kind: {"": 1} for kind in KINDS},
        "jobs": {"jobs": 0},
        "settings": {},
        "findings_shown": [],
    }
    text = verdict.summary(numbers)
    assert "1 event of 1 node in 2 segments." in text
    assert text.count("verdict bad") == 1
    assert text.count("<li>") > 5
