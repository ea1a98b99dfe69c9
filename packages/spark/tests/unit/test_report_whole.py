"""What became of the jobs: each is in exactly one group, and the page says how many are in each."""

import random
import re

import pyarrow as pa
import pytest

from disque_spark.audit import trace as tr
from disque_spark.audit.findings import FINDING_SCHEMA
from disque_spark.audit.rules import KINDS
from disque_spark.defaults import LEASE_QUEUES
from disque_spark.report.whole import GROUPS, Whole, bar, group_of, headline, share
from packages.spark.tests.support.judged_jobs import ADDED, END, ID, A, B, C, Step, job_table

DELIVERED = (2000, A, "delivered:")
Finding = tuple[str, str | None]


def findings(*found: Finding, job: str = ID) -> pa.Table:
    rows = [{"kind": kind, "reason": reason, "job": job} for kind, reason in found]
    return pa.Table.from_pylist(rows, FINDING_SCHEMA).select(["kind", "reason", "job"])


def whole(steps: list[Step], *found: Finding, queue: str = "q", **facts: int) -> Whole:
    counted = Whole(findings(*found))
    for batch in job_table(steps, queue, **facts).combine_chunks().to_batches():
        counted.add(batch)
    return counted


def group(steps: list[Step], *found: Finding, queue: str = "q", **facts: int) -> str:
    counts = whole(steps, *found, queue=queue, **facts).counts
    assert sum(counts.values()) == 1
    return next(name for name, count in counts.items() if count)


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([*ADDED], "waiting"),
        ([*ADDED, DELIVERED], "working"),
        ([*ADDED, DELIVERED, (3000, A, "acked:client")], "done"),
        ([*ADDED, DELIVERED, (3000, A, "deleted:fastack")], "done"),
        ([*ADDED, DELIVERED, (3000, A, "working:")], "working"),
        ([*ADDED, DELIVERED, (3000, A, "nacked:"), (3000, A, "queued:nack")], "waiting"),
        (
            [*ADDED, (2000, A, "delivered:"), (2000, A, "nacked:"), (2000, A, "queued:nack")],
            "waiting",
        ),
        ([*ADDED, DELIVERED, (3000, A, "nacked:"), (3000, A, "paused:nack")], "delayed"),
        ([*ADDED, (1100, A, "paused:queue")], "delayed"),
        (
            [*ADDED, (1100, A, "exported:"), (1101, B, "imported:"), (1101, B, "queued:import")],
            "waiting",
        ),
        ([*ADDED, (1100, A, "exported:")], "unjudged"),
        ([*ADDED, (2000, A, "deleted:command")], "cancelled"),
        ([*ADDED, (2000, A, "cancelled:client")], "cancelled"),
        ([*ADDED, (2000, A, "expired:")], "expired"),
        ([*ADDED, DELIVERED, (2500, A, "dead:attempts")], "failed"),
        ([(1000, A, "added:"), (1000, A, "queued:death")], "letters"),
        ([(1000, C, "copied:")], "unjudged"),
    ],
)
def test_a_job_is_where_its_last_events_put_it(steps: list[Step], expected: str) -> None:
    assert group(steps) == expected


def test_a_job_that_is_not_queued_yet_is_delayed_if_it_has_a_delay() -> None:
    assert group([(1000, A, "added:")], delay=60) == "delayed"
    assert group([(1000, A, "added:")]) == "unjudged"


def test_records_of_leases_are_no_work() -> None:
    assert group(ADDED, queue=f"{LEASE_QUEUES}x") == "leases"


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (("never-delivered", None), "lost"),
        (("never-delivered", "lost"), "lost"),
        (("never-delivered", "held"), "waiting"),
        (("never-delivered", "log-gap"), "unclear"),
        (("not-requeued", None), "lost"),
        (("not-requeued", "held"), "overdue"),
        (("lost-with-worker", None), "lost"),
        (("lost-with-worker", "log-missing"), "unclear"),
        (("never-acknowledged", None), "overdue"),
        (("never-acknowledged", "log-end"), "unclear"),
        (("never-acknowledged", "lost"), "lost"),
        (("expired-unacknowledged", None), "expired"),
        (("letter-waiting", "log-gap"), "letters"),
    ],
)
def test_a_finding_places_an_unfinished_job(found: Finding, expected: str) -> None:
    assert group([*ADDED, DELIVERED], found) == expected


def test_findings_do_not_move_a_job_that_is_over() -> None:
    done = [*ADDED, DELIVERED, (3000, A, "acked:client")]
    assert group(done, ("delivered-after-ack", None), ("delivered-twice", "retry")) == "done"
    assert group([*ADDED, (2000, A, "expired:")], ("expired-undelivered", "log-gap")) == "expired"
    dead = [*ADDED, DELIVERED, (2500, A, "dead:attempts")]
    assert group(dead, ("dead", "attempts"), ("poison", None)) == "failed"


def test_of_several_findings_the_worst_one_counts() -> None:
    assert group(ADDED, ("poison", None), ("waiting", None), ("never-delivered", None)) == "lost"
    assert group([*ADDED, (2000, A, "deleted:command")], ("never-delivered", None)) == "lost"


def test_each_kind_of_finding_leads_to_a_known_group_or_to_none() -> None:
    for kind in KINDS:
        for reason in (None, "log-gap", "log-end", "log-missing", "held", "lost"):
            assert group_of(kind, reason) in (None, *GROUPS)


@pytest.mark.parametrize("seed", range(20))
def test_each_job_is_in_exactly_one_group_whatever_happened(seed: int) -> None:
    rng = random.Random(seed)
    tables, found = [], []
    for number in range(50):
        steps = [
            (rng.randrange(END), rng.randrange(3), rng.choice(list(tr.CODES)))
            for _ in range(rng.randrange(1, 9))
        ]
        table = job_table(steps, delay=rng.choice([0, 5]))
        id = f"D-{number}"
        tables.append(table.set_column(0, "id", pa.array([id])))
        kinds = rng.sample(KINDS, rng.randrange(4))
        found.append(findings(*((kind, rng.choice([None, "log-gap"])) for kind in kinds), job=id))
    counted = Whole(pa.concat_tables(found))
    for batch in pa.concat_tables(tables).combine_chunks().to_batches():
        counted.add(batch)
    numbers = counted.numbers(END)
    assert sum(numbers[name] for name in GROUPS) == numbers["jobs"] == 50


def test_the_job_that_waits_longest_is_named_with_its_queue() -> None:
    counted = whole(ADDED)
    again = [*ADDED, DELIVERED, (3000, A, "nacked:"), (3000, A, "queued:nack")]
    for batch in job_table(again, "late").to_batches():
        counted.add(batch)
    oldest = counted.numbers(61_000)["oldest"]
    assert oldest == {"waiting": {"queue": "q", "since": 1000, "age": 60_000}}


def counts(**groups: int) -> dict[str, int]:
    every = dict.fromkeys(GROUPS, 0) | groups
    return {"jobs": sum(every.values()), **every}


def test_the_sentence_has_losses_first_and_nothing_that_is_not_there() -> None:
    text = headline(counts(done=983, lost=3, unclear=4, failed=2, waiting=8))
    assert text == (
        "98.3 % of 1,000 jobs done; 3 certainly lost; 4 perhaps lost; 2 failed for good; 8 waiting."
    )
    assert headline(counts(done=1)) == "100 % of 1 job done."
    assert headline(counts()) == "The logs have no jobs."


@pytest.mark.parametrize(
    ("part", "all", "expected"),
    [
        (0, 7, "0 %"),
        (1, 100_000, "<0.1 %"),
        (99_999, 100_000, "99.9 %"),
        (1, 3, "33.3 %"),
        (1, 2, "50 %"),
        (5, 5, "100 %"),
        (0, 0, "-"),
    ],
)
def test_a_share_is_never_rounded_to_all_or_nothing(part: int, all: int, expected: str) -> None:
    assert share(part, all) == expected


def test_the_parts_of_the_bar_follow_each_other_up_to_its_end() -> None:
    text = bar(counts(done=1_000_000, lost=1, waiting=50))
    rects = re.findall(r"x='([\d.]+)%' width='([\d.]+)%'", text)
    places = [(float(x), float(width)) for x, width in rects]
    assert len(places) == 3
    ends = [x + width for x, width in places]
    assert places[0][0] == 0
    assert all(abs(end - x) < 0.02 for end, (x, _) in zip(ends, places[1:], strict=False))
    assert abs(ends[-1] - 100) < 0.02
    assert min(width for _, width in places) > 0.5  # even one lost job can be seen
    assert "1 certainly lost" in text
    assert "aria-label" in text
    assert bar(counts()) == ""
