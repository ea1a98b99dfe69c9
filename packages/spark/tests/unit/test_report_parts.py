"""The report without Spark: what it says about given numbers."""

import json
import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

from disque_spark.audit.addresses import addresses_in
from disque_spark.audit.clients import DID, MOST, add_clients, busiest, clients_of
from disque_spark.audit.lacks import DAMAGED, DROPPED, SEGMENT, UNKNOWN, Lack
from disque_spark.audit.result import Result
from disque_spark.audit.rules import KINDS
from disque_spark.audit.trace import CODE_BITS, CODES, TIME_SHIFT
from disque_spark.cli.lacking import lacking
from disque_spark.report import verdict
from disque_spark.report.compare import ComparisonError, slowed, summary, totals
from disque_spark.report.found import findings, job, lives
from disque_spark.report.lists import clients, comparison, schedules
from disque_spark.report.lives import SHOWN, Nodes, life_of
from disque_spark.report.markup import queue_name, table
from disque_spark.report.plots import plots
from disque_spark.report.whole import GROUPS
from disque_trio import humanize

A = "a" * 40


def event(time: int, node: int, what: str) -> int:
    return time << TIME_SHIFT | node << CODE_BITS | CODES[what]


def report(**queues: int) -> dict[str, object]:
    """Return the numbers of a report that are compared, with the p99 of each queue."""
    rows = [{"queue": name, "jobs": 10, "wait_p99": p99} for name, p99 in queues.items()]
    jobs = {"jobs": len(rows) * 10, "acked": 7, "wait_p50": 5}
    findings = dict.fromkeys(KINDS, 0)
    groups = dict.fromkeys(GROUPS, 0) | {"done": 7, "lost": len(rows)}
    numbers = {"first": 0, "last": 9, "jobs": jobs, "findings": findings, "queues": rows}
    return {**numbers, "whole": groups}


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
    (lost,) = [change for change in totals(now) if change.name == "certainly lost"]
    assert (lost.before, lost.now, lost.is_bad) == (3, 4, True)
    del now["before"]["whole"]  # an older version had none
    assert lost._replace(before=None) in totals(now)
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
    assert (
        "<td class=n data-h='neither'>3</td></tr>" in text
    )  # neither acknowledged nor handed back
    assert "nightly" not in text
    assert DID[0] == "added"


def test_jobs_added_by_schedules_are_reported() -> None:
    text = schedules({"clients": {"cron:nightly": [4, 0, 0, 0, 0, 1000, 7000], "w": [0] * 7}})
    assert "nightly" in text
    assert "2 s" in text
    assert schedules({"clients": {}}) == ""


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
    assert len(job({"lives": {long: {"steps": []}}}, long)) < 200


def test_lives_are_cut_in_the_middle_when_there_are_many() -> None:
    steps = [[n, n % 3, "queued:retry"] for n in range(40)]
    life = {"queue": "q", "start": 7, "count": 100, "steps": steps}
    assert lives({"lives": {"D-1": life}}) == {"D-1": [7, 100, steps]}
    many = lives({"lives": {f"D-{n}": life for n in range(1300)}})
    start, count, told = many["D-5"]
    assert (start, count, told[0][0], told[-1][0]) == (7, 100, 0, 39)
    assert sum(len(one[2]) for one in many.values()) <= 10_000


# ---- words --------------------------------------------------------------------------------------


def numbers(reasons: dict[str, dict[str, int]], **more: object) -> dict[str, object]:
    """The numbers that the top of the page needs: a job that is done, and findings."""
    whole = {"jobs": 1, **dict.fromkeys(GROUPS, 0), "done": 1, "oldest": {}}
    jobs = {"jobs": 1, "delivered": 1, "delivered_again": 0, "acked": 1, "young": 0}
    times = {f"{name}_p{percent}": 5 for name in ("wait", "processing") for percent in (50, 99)}
    found: dict[str, object] = {
        "events": 1,
        "nodes": [A],
        "segments": 2,
        "dropped": 0,
        "unknown": 0,
        "damaged": 0,
        "lacks": [],
        "first": 0,
        "last": 0,
        "reasons": {kind: reasons.get(kind, {}) for kind in (*KINDS, *reasons)},
        "finding_jobs": {"": 0},
        "whole": whole,
        "unsure": 0,
        "jobs": jobs | times,
        "settings": {},
        "findings_shown": [],
        "lives": {},
    }
    return found | more


def whole(**groups: object) -> dict[str, object]:
    return {"jobs": 9, **dict.fromkeys(GROUPS, 0), "oldest": {}, **groups}


def test_problems_are_in_one_box_one_per_line_the_most_harmful_first() -> None:
    text = verdict.summary(numbers({kind: {"": 1} for kind in (*KINDS, "once-delivered-twice")}))
    assert "1 event of 1 node in 2 segments." in text
    assert text.count("verdict bad") == 1
    lines = re.findall("<li>(.*?)</li>", text.partition("verdict bad")[2].partition("</ul>")[0])
    assert lines[0] == (
        "1 job was delivered more than once, although that was to happen at most once."
    )
    assert lines[1] == "1 job was confirmed but never delivered."
    assert "1 job was never delivered before it expired." in lines
    assert "1 job was acknowledged, but no log has its delivery." in lines
    assert lines[-1] == "A schedule was to add a job but did not, once."
    assert len(lines) >= 9


def test_the_whole_comes_first_and_losses_before_what_the_logs_lack() -> None:
    lacks = [Lack(DAMAGED, amount=1)._asdict()]
    some = numbers({"never-delivered": {"": 2, "log-gap": 3}}, lacks=lacks)
    text = verdict.summary(some | {"whole": whole(done=4, lost=2, unclear=3)})
    order = [
        "44.4 % of 9 jobs done; 2 certainly lost; 3 perhaps lost.",
        "2 jobs were confirmed but never delivered.",
        "3 jobs are perhaps lost:",
        "1 line of the logs cannot be read.",
        "<b>Judged:</b>",
    ]
    places = [text.index(part) for part in order]
    assert places == sorted(places)
    assert "No job was lost" not in text


def test_dead_letters_and_jobs_that_wait_have_their_own_sentences() -> None:
    oldest = {"queue": "<q>", "since": 0, "age": 10_800_000}
    known = whole(failed=4, letters=1, waiting=280, oldest={"letters": oldest, "waiting": oldest})
    text = verdict.summary(numbers({}, whole=known))
    assert "<b>4 jobs failed for good</b>; 1 dead letter waits, for 3 h in &lt;q&gt;" in text
    assert "<b>280 jobs wait in a queue</b>, the oldest for 3 h in &lt;q&gt;" in text
    assert "No job was lost" in text
    assert "verdict bad" not in text
    assert "failed for good</b>" not in verdict.summary(numbers({}))


def test_jobs_that_a_file_still_has_are_not_called_lost() -> None:
    text = verdict.summary(numbers({"never-delivered": {"held": 3}}))
    assert "verdict bad" not in text
    assert "No job was lost" in text


@pytest.mark.parametrize("what", [DROPPED, UNKNOWN, DAMAGED])
def test_one_thing_is_not_counted_as_many(what: str) -> None:
    one, two = ([Lack(what, amount=amount)._asdict()] for amount in (1, 2))
    text = verdict.summary(numbers({}, lacks=one))
    assert not re.search(r"\b1 (events|lines|jobs|nodes|findings)\b|\b1 \w+ are\b", text)
    assert re.search(r"\b2 (events|lines)\b", verdict.summary(numbers({}, lacks=two)))
    assert "No job was lost" not in text


def test_reasons_name_the_findings_without_one() -> None:
    reasons = {"never-delivered": {"": 50, "log-end": 25}, "poison": {"": 3}}
    found = {kind: sum(reasons.get(kind, {}).values()) for kind in KINDS}
    some = numbers(reasons, findings=found)
    text = findings(some)
    assert "50 certain, 25 log-end" in text
    assert "3 certain" not in text
    # What is no loss is behind one click.
    assert (
        text.index("id=kind-never-delivered")
        < text.index("<details")
        < text.index("id=kind-poison")
    )


def test_rows_of_tables_have_the_names_of_their_columns() -> None:
    text = table(["queue", "#jobs", "=what"], [["a", "1", "b"]])
    assert (
        "<td data-h='queue'>a</td><td class=n data-h='jobs'>1</td><td class=w data-h='what'>"
        in text
    )


def test_events_that_never_happened_have_no_plot() -> None:
    quiet = [[n * 1000, 5, 5, 5, 0, 0, 0] for n in range(9)]
    some = {"step": 1000, "rates": quiet, "depth": {}, "queues_in_all": 0}
    assert [plot.id for plot in plots(some)] == ["rates", "wait", "processing", "depth"]
    quiet[3][4] = 1
    assert [plot.id for plot in plots(some)][1] == "trouble"


def test_the_command_counts_one_thing_as_one() -> None:
    kinds = (DROPPED, UNKNOWN, DAMAGED)
    lost = [Lack(SEGMENT, segment=name, amount=n) for name, n in (("s", 1), ("t", 2), ("u", -1))]
    lacks = [*(Lack(kind, amount=1) for kind in kinds), *lost]
    one = Result(Path("x"), 1, 1, 1, 1, 1, 1, Counter(), lacks=lacks)
    assert list(lacking(one)) == [
        "1 event is missing: the logs say that nodes dropped events",
        "1 event is of a kind that this version does not know",
        "1 line of the logs cannot be read",
        "1 line of segment s is missing",
        "2 lines of segment t are missing",
        "segment u is missing",
    ]
