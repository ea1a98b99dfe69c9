"""The history of a job as a picture: lanes, spans, and the axis."""

import xml.etree.ElementTree as ElementTree

from disque_console.model.lanes import Axis, Kind, Lane, LaneState, Span, kind_of, lanes
from disque_console.model.life import LifeEvent, read_event
from disque_console.web.lifeline import LANES, legend, lifeline
from disque_trio.eventlog import schema

A, B = "a" * 40, "b" * 40


def event(time: float, event: str, node: str = A, **more: str) -> LifeEvent:
    return LifeEvent(time, node, event, **more)


LIFE = [
    event(1.0, "replicated"), event(1.0, "added"), event(1.0, "queued", reason="add"),
    event(1.1, "copied", B), event(3.0, "delivered", by="shop"), event(5.0, "working"),
    event(9.0, "nacked"), event(9.0, "paused", reason="nack"), event(20.0, "queued"),
    event(21.0, "delivered"), event(25.0, "acked"), event(25.1, "acked", B),
]  # fmt: skip


def test_a_job_is_queued_in_hand_and_paused_on_the_lane_of_its_node() -> None:
    first, second = lanes(LIFE, 99.0)
    assert (first.node, second.node) == (A, B)
    assert first.spans == [
        Span(LaneState.QUEUED, 1.0, 3.0),
        Span(LaneState.HAND, 3.0, 9.0),
        Span(LaneState.PAUSE, 9.0, 20.0),
        Span(LaneState.QUEUED, 20.0, 21.0),
        Span(LaneState.HAND, 21.0, 25.0),
    ]
    assert second.spans == []


def test_spans_without_an_end_last_until_now() -> None:
    [lane] = lanes(LIFE[:3] + LIFE[4:6], 60.0)
    assert lane.spans[-1] == Span(LaneState.HAND, 3.0, 60.0, open=True)
    [lane] = lanes([event(5.0, "queued")], 4.0)
    assert lane.spans == [Span(LaneState.QUEUED, 5.0, 5.0, open=True)]


def test_events_of_one_moment_are_one_mark() -> None:
    first, _ = lanes(LIFE, 99.0)
    assert [[event.event for event in mark.events] for mark in first.marks][:2] == [
        ["replicated", "added", "queued"], ["delivered"],
    ]  # fmt: skip
    assert [mark.kind for mark in first.marks] == [
        Kind.QUEUED, Kind.TAKEN, Kind.KEPT, Kind.BACK, Kind.QUEUED, Kind.TAKEN, Kind.GOOD,
    ]  # fmt: skip


def test_good_and_bad_ends_are_told_apart() -> None:
    for bad in (schema.DEAD, schema.EXPIRED, schema.EVICTED, schema.CANCELLED, schema.DELETED):
        assert kind_of(bad) is Kind.BAD
    assert kind_of(schema.ACKED) is Kind.GOOD


def test_milliseconds_are_visible_beside_hours() -> None:
    axis = Axis([0.0, 0.002, 7200.0, 0.002])
    assert (axis.place(0.0), axis.place(7200.0)) == (0.0, 1.0)
    assert 0.05 < axis.place(0.002) < 0.5
    assert Axis([5.0]).place(5.0) == 0.0


def drawn(found: list[Lane]) -> ElementTree.Element:
    return ElementTree.fromstring(lifeline(found, lambda node: node[:8], "a life"))


def texts(picture: ElementTree.Element, name: str) -> list[str]:
    return [part.text or "" for part in picture.iter("{http://www.w3.org/2000/svg}" + name)]


def test_the_picture_has_tooltips_with_events_and_durations() -> None:
    found = lanes(LIFE, 99.0)
    picture = drawn(found)
    titles = texts(picture, "title")
    assert "in hand for 6 s" in titles
    assert "paused for 11 s" in titles
    assert "delivered 1970-01-01 00:00:03 UTC, +2 s, by shop" in titles
    assert any(title.count("\n") == 2 and "queued" in title for title in titles)
    words = texts(picture, "text")
    assert {"aaaaaaaa", "bbbbbbbb", "start", "+24 s"} <= set(words)
    assert picture.get("aria-label") == "a life"
    assert [words for _, words in legend(found)] == [
        "arrived", "queued", "delivered", "in progress, changed", "returned, paused", "done",
        "queued", "in hand", "paused",
    ]  # fmt: skip


def test_hostile_words_of_a_log_are_text() -> None:
    bad = "</title><script>\x07\u202e"
    found = lanes([event(1.0, bad, bad, reason=bad, by=bad)], 2.0)
    picture = drawn(found)
    assert not list(picture.iter("{http://www.w3.org/2000/svg}script"))
    assert any("<script>" in title for title in texts(picture, "title"))


def test_all_stays_within_the_picture_however_much_there_is() -> None:
    many = [event(float(at), "working", f"{at % 50:040d}") for at in range(1000)]
    found = lanes(many, 1000.0)
    assert len(found) == 50
    picture = drawn(found)
    assert len([word for word in texts(picture, "text") if word.startswith("0")]) == LANES
    for rect in picture.iter("{http://www.w3.org/2000/svg}rect"):
        assert 0 <= float(rect.get("x", "")) <= 640


def test_a_time_outside_the_calendar_is_dropped() -> None:
    id = "D-aaaaaaaa-" + "0" * 24 + "-05a1"
    line = f'{{"id": "{id}", "time": {10**400}, "until": {-(10**30)}, "event": "paused"}}'
    found = read_event(line.encode(), id)
    assert found is not None
    assert (found.time, found.until) == (0.0, 0.0)
