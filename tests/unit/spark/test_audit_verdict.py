"""What is said of findings, once they are counted."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from disque_trio.spark.audit.rules import (
    AFTER_ACK,
    HELD,
    KINDS,
    NEVER_ACKED,
    NEVER_DELIVERED,
    NOT_REQUEUED,
    POISON,
    TWICE,
)
from disque_trio.spark.audit.run import Result
from disque_trio.spark.report.page import page

ALL_WELL = "No job was lost"


def said(*found: tuple[str, str], **more: object) -> str:
    """The page about findings of these kinds and reasons."""
    reasons: dict[str, dict[str, int]] = {kind: {} for kind in KINDS}
    for kind, reason in found:
        reasons[kind][reason] = 1
    numbers: dict[str, Any] = {
        "events": 0,
        "dropped": 0,
        "unknown": 0,
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
    }
    for name in ("nodes", "missing_nodes", "findings_shown", "queues"):
        numbers[name] = []
    for name in ("wait", "processing", "deliveries", "rates"):
        numbers[name] = []
    return page(numbers | more)


def result(*found: tuple[str, str | None]) -> Result:
    return Result(
        path=Path(),
        segments=0,
        events=0,
        jobs=0,
        dropped=0,
        unknown=0,
        damaged=0,
        findings=Counter(kind for kind, _ in found),
        reasons=Counter(found),
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
