"""The verdict about findings, given their counts."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from disque_spark.audit import lacks as lk
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
from disque_spark.cli.lacking import judged, lacking
from disque_spark.report.found import findings
from disque_spark.report.markup import time
from disque_spark.report.verdict import summary
from disque_spark.report.whole import GROUPS

ALL_WELL = "No job was lost"


def numbers_of(*found: tuple[str, str], **more: object) -> dict[str, Any]:
    """Return the numbers of a page about findings of these kinds and reasons."""
    reasons: dict[str, dict[str, int]] = {kind: {} for kind in KINDS}
    for kind, reason in found:
        reasons[kind][reason] = 1
    times = {f"{name}_p{rank}": None for name in ("wait", "processing") for rank in (50, 99)}
    numbers: dict[str, Any] = {
        **dict.fromkeys(("events", "first", "last", "segments", "unsure"), 0),
        "jobs": {"jobs": 1, "delivered_again": 0, "delivered": 1, **times},
        "whole": {"jobs": 1, **dict.fromkeys(GROUPS, 0), "done": 1, "oldest": {}},
        "finding_jobs": {"": 0},
        "reasons": reasons,
        "settings": {},
        **{name: [] for name in ("nodes", "lacks", "findings_shown")},
    }
    return numbers | more


def said(*found: tuple[str, str], **more: object) -> str:
    """Return the top of that page."""
    return summary(numbers_of(*found, **more))


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


def test_a_job_that_waits_in_a_file_for_its_first_delivery_is_not_lost() -> None:
    assert result((NEVER_DELIVERED, HELD)).serious == 0
    assert "verdict bad" not in said((NEVER_DELIVERED, HELD))
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


A, B = "a" * 40, "b" * 40
MINUTE = 60_000
NAME = "events-aaaaaaaa-1-1.jsonl"


@pytest.mark.parametrize(
    "lack",
    [
        *(lk.Lack(lk.NODE, A), lk.Lack(lk.GONE, A), lk.Lack(lk.SEGMENT, A, 1, 2, NAME)),
        *(
            lk.Lack(lk.SEGMENT, A, 1, 2, NAME, 5),
            lk.Lack(lk.EMPTY, A, segment=NAME),
        ),
        *(
            lk.Lack(lk.LEFT_OPEN, A, 1, segment=NAME),
            lk.Lack(lk.UNREAD, A, segment="x.zst"),
        ),
        *(lk.Lack(lk.OFF, A, 1, 2, amount=3), lk.Lack(lk.OFF, A, 1), lk.Lack(lk.NO_STOP, A, 1)),
        *(lk.Lack(kind, amount=7) for kind in (lk.DROPPED, lk.DAMAGED, lk.UNKNOWN)),
        *(lk.Lack(lk.KILLED, A, 1, 2, amount=1), lk.Lack(lk.EARLIER, A, until=5)),
        *(lk.Lack(lk.LATE, A, 1, 5), lk.Lack(lk.GOES_ON, A, 5), lk.Lack(lk.GOES_ON, A)),
    ],
)
def test_with_incomplete_logs_nothing_says_that_no_job_was_lost(lack: lk.Lack) -> None:
    whole = result()
    assert (whole.is_whole, whole.is_partial, list(lacking(whole))) == (True, False, [])
    torn = result(lacks=[lack])
    # The others cannot be helped, or disappear when nodes close their segments.
    bounds = (lk.GONE, lk.KILLED, lk.EARLIER, lk.LATE, lk.GOES_ON)
    assert (torn.is_whole, torn.is_partial) == (False, lack.kind not in bounds)
    (line,) = lacking(torn)
    assert "{" not in line
    text = said(lacks=[lack._asdict()])
    assert ALL_WELL not in text
    assert "No loss is known" in text
    _, _, box = text.partition("class='lacks")
    assert box.partition("</div>")[0].count("<li>") == 1
    # Jobs known to be lost come first.
    lost = said((NEVER_DELIVERED, ""), lacks=[lack._asdict()])
    assert "No loss is known" not in lost
    assert "verdict bad" in lost
    assert lost.index("verdict bad") < lost.index("class='lacks")


def test_running_nodes_are_no_reason_for_a_warning() -> None:
    calm = said(lacks=[lk.Lack(lk.GOES_ON, node, 5)._asdict() for node in (A, B)])
    assert "the logs go on" in calm
    assert "lacks warn" not in calm
    assert "lacks warn" in said(lacks=[lk.Lack(lk.NO_STOP, A, 5)._asdict()])


def test_jobs_that_only_a_file_can_tell_of_leave_doubt() -> None:
    lacks = [lk.Lack(lk.GOES_ON, A, 7)._asdict()]
    for more in ({"unsure": 3}, {"unsure": 1}, {"unsure": 3, "lacks": lacks}):
        text = said(**more)
        assert ALL_WELL not in text
        assert "<p class=warn><b>No loss is known" in text
        assert "audit --aof" in text


def test_the_verdict_speaks_of_the_time_and_the_nodes_that_it_saw() -> None:
    assert f"No job was lost from {time(MINUTE)} to {time(9 * MINUTE)}" in said(
        first=MINUTE, last=9 * MINUTE
    )
    lacks = [
        *(lk.Lack(lk.EARLIER, A, until=3 * MINUTE), lk.Lack(lk.NODE, B)),
        *(lk.Lack(lk.GOES_ON, A, 7 * MINUTE), lk.Lack(lk.KILLED, A, 4 * MINUTE, 5 * MINUTE)),
    ]
    text = said(
        first=MINUTE, last=9 * MINUTE, nodes=[A, "c" * 40], lacks=[one._asdict() for one in lacks]
    )
    assert f"No loss is known from {time(3 * MINUTE)} to {time(7 * MINUTE)}" in text
    assert "2 of 3 nodes" in text
    said_so = judged(result(lacks=lacks, nodes=2, first=MINUTE, last=9 * MINUTE))
    assert said_so == (
        "judged: 2 of 3 nodes, from 1970-01-01 00:03:00 UTC to 1970-01-01 00:07:00 UTC"
    )


def test_several_gaps_of_a_node_are_told_together() -> None:
    holes = [
        lk.Lack(lk.KILLED, A, 9 * MINUTE, 10 * MINUTE),
        lk.Lack(lk.LINES, A, 11 * MINUTE, 11 * MINUTE),
        lk.Lack(lk.KILLED, A, 12 * MINUTE, 13 * MINUTE),
        lk.Lack(lk.OFF, A, 20 * MINUTE),
        lk.Lack(lk.KILLED, B, 1, 2),  # of days that were dropped
    ]
    assert lk.in_period(holes, MINUTE) == [
        lk.Lack(lk.KILLED, A, 9 * MINUTE, 13 * MINUTE, amount=2),
        lk.Lack(lk.OFF, A, 20 * MINUTE),
    ]
    (line, _) = lacking(result(lacks=lk.in_period(holes, MINUTE)))
    assert "2 gaps between 1970-01-01 00:09" in line


DAY = lk.FRESH
NOW = 100 * DAY
STOPS = [lk.Lack(lk.NO_STOP, A, 5), lk.Lack(lk.NO_STOP, B, 6)]


@pytest.mark.parametrize(
    ("stills", "grown", "kinds"),
    [
        ([], [], [(lk.NO_STOP, A), (lk.NO_STOP, B)]),
        ([lk.Still(A, "s", NOW - 5, True)], [], [(lk.NO_STOP, B), (lk.GOES_ON, A)]),
        ([lk.Still(A, "s", NOW - 2 * DAY, True)], [], [(lk.NO_STOP, B), (lk.LEFT_OPEN, A)]),
        ([lk.Still(A, "s", NOW - 5, False)], [], [(lk.NO_STOP, B), (lk.LEFT_OPEN, A)]),
        ([], [B], [(lk.NO_STOP, A), (lk.GOES_ON, B)]),
    ],
)
def test_a_log_goes_on_if_something_shows_it(
    stills: list[lk.Still], grown: list[str], kinds: list[tuple[str, str]]
) -> None:
    found = lk.with_ends(STOPS, stills, {A: 5, B: 6}, NOW, grown)
    assert [(lack.kind, lack.node) for lack in found] == kinds
    assert {lack.since for lack in found} == {5, 6}


def test_every_kind_of_finding_has_its_meaning_on_the_page() -> None:
    text = findings(numbers_of(findings=dict.fromkeys(KINDS, 1)))
    assert all(f"id=kind-{kind}" in text for kind in KINDS)


def test_a_tick_that_added_no_job_is_not_all_well_and_two_jobs_are() -> None:
    missed = said((SCHEDULE_MISSED, "down"))
    assert ALL_WELL not in missed
    assert "A schedule was to add a job but did not, once." in missed
    assert result((SCHEDULE_MISSED, "down")).serious == 1
    assert ALL_WELL in said((SCHEDULE_DOUBLED, ""))
    assert result((SCHEDULE_DOUBLED, None)).serious == 0
