"""The verdict about findings, given their counts."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from disque_spark.audit.gaps import FOR_EVER, Gap, Silence, silences
from disque_spark.audit.result import Result
from disque_spark.audit.rules import (
    AFTER_ACK,
    HELD,
    KINDS,
    NEVER_ACKED,
    NEVER_DELIVERED,
    NOT_REQUEUED,
    POISON,
    SCHEDULE_DOUBLED,
    SCHEDULE_MISSED,
    TWICE,
)
from disque_spark.cli.lacking import lacking
from disque_spark.report.page import page

ALL_WELL = "No job was lost"


def said(*found: tuple[str, str], **more: object) -> str:
    """Return the page about findings of these kinds and reasons."""
    reasons: dict[str, dict[str, int]] = {kind: {} for kind in KINDS}
    for kind, reason in found:
        reasons[kind][reason] = 1
    numbers: dict[str, Any] = {
        "events": 0,
        "dropped": 0,
        "unknown": 0,
        "damaged": 0,
        "first": 0,
        "last": 0,
        "segments": 0,
        "step": 1000,
        "jobs": {"jobs": 1, "open": 1, "expired": 0, "delivered_again": 0}
        | {"delivered": 1, "acked": 0, "wait_p50": None, "wait_p99": None}
        | {"processing_p50": None, "processing_p99": None},
        "findings": {},
        "reasons": reasons,
        "depth": {},
        "settings": {},
        "hours": {"first": 0, "last": 0, "queues": [], "delivered": []},
        "missing_segments": {},
        "silences": {},
    }
    for name in ("nodes", "missing_nodes", "gone", "findings_shown", "queues"):
        numbers[name] = []
    for name in ("wait", "processing", "deliveries", "rates"):
        numbers[name] = []
    return page(numbers | more)


def result(*found: tuple[str, str | None], **more: Any) -> Result:
    return Result(
        path=Path(),
        segments=0,
        events=0,
        jobs=0,
        findings=Counter(kind for kind, _ in found),
        reasons=Counter(found),
        **{"dropped": 0, "unknown": 0, "damaged": 0} | more,
    )


def test_a_job_that_waits_in_a_file_for_its_first_delivery_is_not_lost_but_not_done_either() -> (
    None
):
    assert result((NEVER_DELIVERED, HELD)).serious == 0
    text = said((NEVER_DELIVERED, HELD))
    assert ALL_WELL not in text
    assert "1 job waits" in text
    assert ALL_WELL in said()


@pytest.mark.parametrize("kind", [NEVER_ACKED, NOT_REQUEUED])
def test_that_a_file_has_a_job_does_not_say_that_its_node_delivers_it_again(kind: str) -> None:
    assert result((kind, HELD), (NEVER_DELIVERED, HELD)).serious == 1
    text = said((kind, HELD))
    assert ALL_WELL not in text
    assert "verdict bad" in text
    assert "first delivery" not in text


def test_a_delivery_after_the_ack_is_not_all_well() -> None:
    text = said((AFTER_ACK, "heard"))
    assert ALL_WELL not in text
    assert "1 job was delivered after an acknowledgement" in text
    assert result((AFTER_ACK, "heard")).serious == 1


def test_what_may_happen_at_least_once_is_not_serious() -> None:
    assert result((TWICE, "retry"), (POISON, None)).serious == 0
    assert ALL_WELL in said((TWICE, "retry"), (POISON, ""))


A = "a" * 40
SILENT = Silence(until=5000)


@pytest.mark.parametrize(
    ("lack", "missing", "partial"),
    [
        ("missing_nodes", [A], True),
        ("missing_segments", {"events-aaaaaaaa-1-1.jsonl": -1}, True),
        ("dropped", 5, True),
        ("damaged", 1, True),
        ("unknown", 2, True),
        # Problems that cannot be helped, or disappear when nodes close their segments.
        ("gone", [A], False),
        ("silences", {A: SILENT}, False),
    ],
)
def test_with_incomplete_logs_nothing_says_that_no_job_was_lost(
    lack: str, missing: Any, partial: bool
) -> None:
    whole = result()
    assert (whole.is_whole, whole.is_partial, list(lacking(whole))) == (True, False, [])
    torn = result(**{lack: missing})
    assert (torn.is_whole, torn.is_partial) == (False, partial)
    assert len(list(lacking(torn))) == 1
    shown = {A: SILENT._asdict()} if lack == "silences" else missing
    text = said(**{lack: shown})
    assert ALL_WELL not in text
    assert "No loss is known" in text
    all_well_items = said().partition("Not judged:")[2].count("<li>")
    _, _, unjudged = text.partition("Not judged:")
    assert unjudged.count("<li>") == 1 + all_well_items, unjudged
    # Jobs known to be lost come first.
    lost = said((NEVER_DELIVERED, ""), **{lack: shown})
    assert "No loss is known" not in lost
    assert "verdict bad" in lost


def test_silences_of_the_logs_are_reported_node_by_node() -> None:
    minute = 60_000
    gaps = [
        Gap(0, 0, 2 * minute - 1),  # begins with the others
        Gap(0, 9 * minute, 10 * minute),
        Gap(0, 12 * minute, 13 * minute),
        Gap(1, 0, 5 * minute),
        Gap(1, 20 * minute, FOR_EVER),
        Gap(2, 59 * minute + 1, FOR_EVER),  # ends with the others
        Gap(3, 0, FOR_EVER),  # has no log
    ]
    found = silences(gaps, ["a", "b", "c", "d"], 1 * minute, 60 * minute, minute)
    assert found == {
        "a": Silence(2, 9 * minute, 13 * minute),
        "b": Silence(since=5 * minute, until=20 * minute),
    }
    assert silences([Gap(0, 0, 5)], ["a"], 6, 60, 0) == {}  # of days that were dropped
    lines = list(lacking(result(silences=found)))
    assert [line.split(" of node ")[1][0] for line in lines] == ["a", "b", "b"]
    assert "2 gaps between 1970-01-01 00:09" in lines[0]


def test_every_kind_of_finding_has_its_meaning_on_the_page() -> None:
    text = said(findings=dict.fromkeys(KINDS, 1))
    assert all(f"<td>{kind}</td>" in text for kind in KINDS)


def test_a_tick_that_added_no_job_is_not_all_well_and_two_jobs_are() -> None:
    missed = said((SCHEDULE_MISSED, "down"))
    assert ALL_WELL not in missed
    assert "A schedule was to add a job but did not, once." in missed
    assert result((SCHEDULE_MISSED, "down")).serious == 1
    assert ALL_WELL in said((SCHEDULE_DOUBLED, ""))
    assert result((SCHEDULE_DOUBLED, None)).serious == 0
