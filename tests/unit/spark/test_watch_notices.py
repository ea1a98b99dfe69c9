"""What a watch tells: what is new, what is gone, figures of minutes that are over."""

import json
from typing import Any

import pytest

from disque_trio.spark.watch import notices
from disque_trio.spark.watch.notices import MINUTE, Row, Told, compare, key_of

START = 1_795_000_020_000 - 1_795_000_020_000 % MINUTE


def finding(job: str | None = "D-1", kind: str = "never-delivered", **fields: Any) -> Row:
    row: Row = {"kind": kind, "reason": None, "job": job, "queue": "q", "time": START}
    return row | {"nodes": ["a", "b"], "detail": "nobody got it"} | fields


def minute(number: int, queue: str = "q", added: int = 1) -> Row:
    at = START + number * MINUTE
    return {"minute": at, "queue": queue, "added": added, "delivered": 0, "depth": None}


def test_a_finding_is_told_once() -> None:
    notice, told = compare(Told(), [finding()], [], START)
    assert notice.found == [finding()]
    assert not notice.is_empty
    notice, told = compare(told, [finding()], [], START)
    assert notice.is_empty
    assert notice.standing == {"never-delivered": 1}


def test_a_finding_is_the_same_with_other_words_and_another_time() -> None:
    _, told = compare(Told(), [finding()], [], START)
    notice, _ = compare(told, [finding(time=START + 5, detail="still nobody")], [], START)
    assert notice.is_empty


def test_a_finding_with_another_reason_is_another_one() -> None:
    _, told = compare(Told(), [finding(reason="log-end")], [], START)
    notice, _ = compare(told, [finding()], [], START)
    assert [row["reason"] for row in notice.found] == [None]
    assert notice.gone == [
        {"kind": "never-delivered", "reason": "log-end", "job": "D-1", "queue": "q"}
    ]


def test_findings_about_nodes_are_told_apart_by_these() -> None:
    one, other = finding(None, nodes=["a", "b"]), finding(None, nodes=["a", "c"])
    assert key_of(one) == key_of(finding(None, nodes=["b", "a"])) != key_of(other)
    assert key_of(finding(nodes=["a"])) == key_of(finding(nodes=["b"]))


def test_what_does_not_stand_any_more_is_gone_once() -> None:
    _, told = compare(Told(), [finding(), finding("D-2")], [], START)
    notice, told = compare(told, [finding("D-2")], [], START)
    assert [row["job"] for row in notice.gone] == ["D-1"]
    notice, told = compare(told, [finding("D-2")], [], START)
    assert notice.is_empty
    notice, _ = compare(told, [finding(), finding("D-2")], [], START)
    assert [row["job"] for row in notice.found] == ["D-1"]  # it is back


def test_figures_are_told_of_minutes_that_are_over() -> None:
    rows = [minute(0), minute(1), minute(2)]
    notice, told = compare(Told(), [], rows, START + 2 * MINUTE + 10)
    assert notice.queues == rows[:2]
    notice, told = compare(told, [], rows, START + 2 * MINUTE + 20)
    assert notice.is_empty
    notice, told = compare(told, [], rows, START + 3 * MINUTE)
    assert notice.queues == rows[2:]
    notice, _ = compare(told, [], rows, START)  # a clock that went back tells nothing again
    assert notice.is_empty


def test_a_notice_is_bounded_and_says_how_much_it_leaves_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(notices, "MOST_ROWS", 2)
    found = [finding(f"D-{number}", time=START - number) for number in range(5)]
    rows = [minute(0, f"q{number}", added=number) for number in range(4)]
    notice, told = compare(Told(), found, rows, START + MINUTE)
    assert [row["job"] for row in notice.found] == ["D-4", "D-3"]  # the oldest
    assert [row["queue"] for row in notice.queues] == ["q3", "q2"]  # the busiest
    assert notice.more == {"found": 3, "gone": 0, "queues": 2}
    assert notice.standing == {"never-delivered": 5}
    notice, _ = compare(told, [], [], START + MINUTE)
    assert notice.more["gone"] == 3


def test_findings_that_are_too_many_to_remember_only_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notices, "MOST_TOLD", 2)
    found = [finding(f"D-{number}") for number in range(3)]
    notice, told = compare(Told(), found, [], START)
    assert len(notice.found) == 2
    notice, told = compare(told, found, [], START)
    assert notice.is_empty
    notice, _ = compare(told, found[1:], [], START)
    assert [row["job"] for row in notice.found] == ["D-2"]  # there is room now


def test_what_was_told_is_kept() -> None:
    _, told = compare(Told(), [finding()], [minute(0)], START + MINUTE)
    assert Told.of(json.loads(json.dumps(told.as_json()))) == told
    for wrong in (None, [], {}, [1, 2], [{}, "x"]):
        with pytest.raises(ValueError, match="not what a watch keeps"):
            Told.of(wrong)


def test_a_document_has_an_id_of_its_contents() -> None:
    notice, told = compare(Told(), [finding()], [minute(0)], START + MINUTE)
    again, _ = compare(Told(), [finding()], [minute(0)], START + MINUTE)
    assert notice.document() == again.document()
    other, _ = compare(told, [finding("D-2")], [], START + MINUTE)
    assert other.document()["id"] != notice.document()["id"]
