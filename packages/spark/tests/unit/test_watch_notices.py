"""What a watch reports: what is new, what is gone, and figures of completed minutes."""

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from disque_spark.audit.rules import KINDS
from disque_spark.watch import notices
from disque_spark.watch.notices import (
    MINUTE,
    Findings,
    News,
    Notice,
    Row,
    Standing,
    Told,
    View,
    missing_logs,
)

START = 1_795_000_020_000 - 1_795_000_020_000 % MINUTE
SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in ("kind", "reason", "job", "queue", "detail")),
        ("time", pa.int64()),
        ("nodes", pa.list_(pa.string())),
    ]
)


def finding(job: str | None = "D-1", kind: str = "never-delivered", **fields: Any) -> Row:
    row: Row = {"kind": kind, "reason": None, "job": job, "queue": "q", "time": START}
    return row | {"nodes": ["a", "b"], "detail": "nobody got it"} | fields


def minute(number: int, queue: str = "q", added: int = 1) -> Row:
    at = START + number * MINUTE
    return {"minute": at, "queue": queue, "added": added, "delivered": 0, "depth": None}


def view(
    found: Sequence[Row] = (),
    minutes: Sequence[Row] = (),
    over: int = START,
    kinds: Sequence[str] = KINDS,
    **more: Any,
) -> View:
    tables = [Findings(pa.Table.from_pylist([row], SCHEMA)) for row in found]
    return View(over, over, Standing(tables, kinds, **more), minutes)


def tell(told: Told, view: View) -> list[Notice]:
    """Return all notices, each of which arrives."""
    news = News(told, view)
    came = []
    while (notice := news.notice()) is not None:
        news.was_told(notice)
        came.append(notice)
    assert news.left == 0
    return came


def test_a_finding_is_told_once() -> None:
    told = Told()
    [notice] = tell(told, view([finding()]))
    assert notice.found == [finding()]
    assert notice.standing == {"never-delivered": 1}
    assert tell(told, view([finding()])) == []


def test_a_notice_that_did_not_arrive_comes_again_with_what_is_new_then() -> None:
    told = Told()
    lost = News(told, view([finding()], [minute(0)], START + MINUTE)).notice()
    assert lost is not None
    [notice] = tell(told, view([finding(), finding("D-2")], [minute(0)], START + MINUTE))
    assert [row["job"] for row in notice.found] == ["D-1", "D-2"]
    assert notice.queues == [minute(0)]
    assert notice.number == lost.number == 1


def test_a_finding_is_the_same_with_other_words_and_another_time() -> None:
    told = Told()
    tell(told, view([finding()]))
    assert tell(told, view([finding(time=START + 5, detail="still nobody")])) == []
    assert tell(told, view([finding(nodes=["c"])])) == []


def test_a_finding_with_another_reason_is_another_one() -> None:
    told = Told()
    tell(told, view([finding(reason="log-end")]))
    [notice] = tell(told, view([finding()]))
    assert [row["reason"] for row in notice.found] == [None]
    assert notice.gone == [
        {"kind": "never-delivered", "reason": "log-end", "job": "D-1", "queue": "q"}
    ]


def test_findings_about_nodes_are_told_apart_by_these() -> None:
    told = Told()
    one, same, other = (finding(None, nodes=nodes) for nodes in (["a", "b"], ["b", "a"], ["a"]))
    tell(told, view([one]))
    assert tell(told, view([same])) == []
    [notice] = tell(told, view([one, other]))
    assert notice.found == [other]


def test_a_finding_that_no_longer_applies_is_reported_as_gone_once() -> None:
    told = Told()
    tell(told, view([finding(), finding("D-2")]))
    [notice] = tell(told, view([finding("D-2")]))
    assert [row["job"] for row in notice.gone] == ["D-1"]
    assert tell(told, view([finding("D-2")])) == []
    [notice] = tell(told, view([finding(), finding("D-2")]))
    assert [row["job"] for row in notice.found] == ["D-1"]  # it is back


def test_a_kind_that_is_told_no_more_is_not_gone() -> None:
    told = Told()
    tell(told, view([finding(), finding("D-2", "poison"), finding("D-3", "poison")]))
    assert tell(told, view([finding()], kinds=["never-delivered"])) == []
    [notice] = tell(told, view([finding(), finding("D-2", "poison")]))
    assert (notice.found, [row["job"] for row in notice.gone]) == ([], ["D-3"])


def test_logs_that_are_missing_are_told_and_that_they_are_there_again() -> None:
    told = Told()
    missing = missing_logs(["abc"], {"events-1": 5, "events-2": -1})
    [notice] = tell(told, view(kinds=["poison"], missing=missing))
    assert [(row["reason"], row["nodes"]) for row in notice.found] == [
        ("node", ["abc"]),
        ("segment", ["events-1"]),
        ("segment", ["events-2"]),
    ]
    assert "5 lines of segment events-1" in notice.found[1]["detail"]
    assert notice.standing == {"log-missing": 3}
    assert tell(told, view(kinds=["poison"], missing=missing)) == []
    [notice] = tell(told, view(kinds=["poison"], missing=missing[1:]))
    assert [(row["reason"], row["nodes"]) for row in notice.gone] == [("node", ["abc"])]


def test_figures_are_told_of_minutes_that_are_over() -> None:
    told, rows = Told(), [minute(0), minute(1), minute(2)]
    [notice] = tell(told, view((), rows, START + 2 * MINUTE + 10))
    assert notice.queues == rows[:2]
    assert tell(told, view((), rows, START + 2 * MINUTE + 20)) == []
    [notice] = tell(told, view((), rows, START + 3 * MINUTE))
    assert notice.queues == rows[2:]
    assert tell(told, view((), rows, START)) == []  # a clock that went back repeats nothing


def test_many_rows_come_in_several_notices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notices, "MOST_ROWS", 2)
    told = Told()
    found = [finding(f"D-{number}", time=START - number) for number in range(5)]
    rows = [minute(0, f"q{number}", added=number) for number in range(4)]
    came = tell(told, view(found, rows, START + MINUTE))
    assert [[row["job"] for row in notice.found] for notice in came] == [
        ["D-4", "D-3"],  # the oldest
        ["D-2", "D-1"],
        ["D-0"],
    ]
    assert [[row["queue"] for row in notice.queues] for notice in came] == [
        ["q3", "q2"],  # the busiest
        ["q1", "q0"],
        [],
    ]
    assert came[0].more == {"found": 3, "gone": 0, "queues": 2}
    assert came[2].more == {"found": 0, "gone": 0, "queues": 0}
    assert [notice.number for notice in came] == [1, 2, 3]
    assert came[0].standing == {"never-delivered": 5}
    came = tell(told, view((), (), START + MINUTE))
    assert [len(notice.gone) for notice in came] == [2, 2, 1]


def test_a_receiver_that_got_some_notices_gets_the_others_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(notices, "MOST_ROWS", 2)
    told = Told()
    found = [finding(f"D-{number}", time=START + number) for number in range(5)]
    rows = [minute(0, f"q{number}", added=number) for number in range(3)]
    seen = view(found, rows, START + 2 * MINUTE)
    news = News(told, seen)
    first = news.notice()
    assert first is not None
    news.was_told(first)
    told = Told.of(json.loads(json.dumps(told.as_json())))  # as after a kill
    came = tell(told, seen)
    assert [row["job"] for notice in came for row in notice.found] == ["D-2", "D-3", "D-4"]
    # The minute that was split is reported as a whole.
    assert [row["queue"] for notice in came for row in notice.queues] == ["q2", "q1", "q0"]


def test_findings_that_are_too_many_to_remember_only_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notices, "MOST_TOLD", 2)
    told, found = Told(), [finding(f"D-{number}") for number in range(3)]
    [notice] = tell(told, view(found))
    assert len(notice.found) == 2
    assert notice.standing == {"never-delivered": 3}
    assert tell(told, view(found)) == []
    [notice] = tell(told, view(found[1:]))
    assert [row["job"] for row in notice.found] == ["D-2"]  # there is room now


def test_reported_findings_are_remembered() -> None:
    told = Told()
    tell(told, view([finding()], [minute(0)], START + MINUTE))
    assert Told.of(json.loads(json.dumps(told.as_json()))) == told
    for wrong in (None, [], {}, [1, 2], [{}, "x"], [{}, 1]):
        with pytest.raises(ValueError, match="not the state of a watch"):
            Told.of(wrong)


def test_a_document_has_an_id_of_its_contents() -> None:
    seen = view([finding()], [minute(0)], START + MINUTE)
    told = Told()
    [notice], [again] = tell(told, seen), tell(Told(), seen)
    assert notice.document() == again.document()
    # A finding that comes, goes and comes back at the same time does not give the same notice
    # twice.
    tell(told, view((), [minute(0)], START + MINUTE))
    [back] = tell(told, seen)
    assert back.found == notice.found
    assert back.document()["id"] != notice.document()["id"]
