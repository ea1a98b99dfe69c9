"""The audit says what it cannot see, and promises nothing about it."""

import html
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from disque_spark.audit import lacks as lk
from disque_spark.audit.engine import LocalEngine
from disque_spark.audit.lacks import Lack
from disque_spark.audit.result import Result
from disque_spark.audit.rules import Rules
from disque_spark.audit.run import audit
from disque_spark.report.numbers import make_report
from disque_spark.report.page import page
from packages.spark.tests.support.unseen_logs import MINUTE, NODES, START, A, B, C, Story

RULES = Rules(settled=2)
ALL = (A, B, C)


def judged(story: Story, output: Path) -> tuple[Result, str]:
    """Audit the logs. Return the result, and the text of the page."""
    result = audit(LocalEngine(1), [str(story.directory)], output, RULES)
    text = page(make_report(output))
    text = re.sub(r"<(script|style).*?</\1>", "", text, flags=re.S)
    return result, html.unescape(re.sub(r"<[^>]*>", "", text))


def lived(directory: Path, *, old: bool = False) -> Story:
    """Three nodes work for three minutes, and stop cleanly."""
    story = Story(directory, old=old)
    story.begin(*ALL)
    story.work(3, *ALL)
    story.stop(*ALL)
    return story


# ---- the cases ----------------------------------------------------------------------------------


def switched_off_and_on(directory: Path) -> Story:
    story = Story(directory)
    story.begin(*ALL)
    story.work(1, *ALL)
    story.stop(A, why="switched-off")
    story.work(1, B, C)
    story.begin(A, up=START)
    story.work(1, *ALL)
    story.stop(*ALL)
    return story


def switched_on_late(directory: Path) -> Story:
    story = Story(directory)
    story.begin(B, C)
    story.work(1, B, C)
    story.begin(A, up=START)
    story.work(1, *ALL)
    story.stop(*ALL)
    return story


def switched_off_at_the_end(directory: Path) -> Story:
    story = Story(directory)
    story.begin(*ALL)
    story.work(1, *ALL)
    story.stop(A, why="switched-off")
    story.work(1, B, C)
    story.stop(B, C)
    return story


def a_node_that_nobody_names(directory: Path) -> Story:
    story = lived(directory)
    story.remove(B)
    return story


def a_node_replaced(directory: Path) -> Story:
    story = Story(directory)
    story.begin(A, B)
    story.nodes = [*NODES[:2]]
    story.work(1, A, B)
    story.nodes = [NODES[A], NODES[C]]  # the new one, in an empty directory
    story.begin(C)
    story.work(2, A, C)
    story.stop(A, C)
    story.remove(B)
    return story


def first_segment_rotated_away(directory: Path) -> Story:
    story = Story(directory, nodes=1)
    story.begin(A)
    story.work(3, A)
    story.stop(A)
    story.remove(A, 0)
    return story


def last_segment_missing(directory: Path) -> Story:
    story = lived(directory)
    story.remove(A, -1)
    return story


def last_segment_empty(directory: Path) -> Story:
    story = lived(directory)
    story.segments(A)[-1].write_bytes(b"")
    return story


def middle_segment_empty(directory: Path) -> Story:
    story = lived(directory)
    story.segments(A)[1].write_bytes(b"")
    return story


def cut_between_lines(directory: Path) -> Story:
    story = lived(directory)
    story.remove(A, -1)
    last = story.segments(A)[-1]
    last.write_bytes(b"".join(last.read_bytes().splitlines(True)[:-4]))
    return story


def left_open_by_a_dead_machine(directory: Path) -> Story:
    story = lived(directory)
    last = story.segments(A)[-1]
    left = last.rename(f"{last}.open")
    os.utime(left, (START / 1000, START / 1000))
    return story


def packed_by_somebody(directory: Path) -> Story:
    story = lived(directory)
    last = story.segments(A)[-1]
    last.rename(f"{last}.zst")
    return story


def all_nodes_dead_at_once(directory: Path) -> Story:
    story = Story(directory)
    story.begin(*ALL)
    story.work(3, *ALL)
    return story


def killed_and_started_again(directory: Path) -> Story:
    story = Story(directory)
    story.begin(*ALL)
    story.work(1, *ALL)
    story.begin(A)
    story.work(1, *ALL)
    story.stop(*ALL)
    return story


def running_nodes(directory: Path) -> Story:
    story = Story(directory)
    story.begin(*ALL)
    story.work(3, *ALL)
    for node in ALL:
        name = f"events-{NODES[node][:8]}-{story.at + 1:013d}-9.jsonl.open"
        (directory / name).write_text("")
    return story


class Case(NamedTuple):
    """A case: how it comes about, what it lacks (kind, node), whether ``--check`` ends with 3, and
    what the page says."""

    make: Callable[[Path], Story]
    lacks: set[tuple[str, int]]
    holes: bool
    says: str


A_LOG = "The log of node aaaaaaaa"
NO_STOP = f"{A_LOG} ends without a stop"
CASES = [
    Case(switched_off_and_on, {(lk.OFF, A)}, True, f"{A_LOG} was switched off between"),
    Case(switched_on_late, {(lk.LATE, A)}, False, "but its log was switched on at"),
    Case(switched_off_at_the_end, {(lk.OFF, A)}, True, f"{A_LOG} was switched off at"),
    Case(a_node_that_nobody_names, {(lk.NODE, B)}, True, "2 of 3 nodes"),
    Case(a_node_replaced, {(lk.NODE, B)}, True, "2 of 3 nodes"),
    Case(first_segment_rotated_away, {(lk.EARLIER, A)}, False, "are gone: its log begins at"),
    Case(last_segment_missing, {(lk.NO_STOP, A)}, True, NO_STOP),
    Case(last_segment_empty, {(lk.EMPTY, A), (lk.NO_STOP, A)}, True, "is empty."),
    Case(middle_segment_empty, {(lk.SEGMENT, A)}, True, "are missing."),
    Case(cut_between_lines, {(lk.NO_STOP, A)}, True, NO_STOP),
    Case(left_open_by_a_dead_machine, {(lk.LEFT_OPEN, A)}, True, "was left open"),
    Case(packed_by_somebody, {(lk.UNREAD, A), (lk.NO_STOP, A)}, True, ".zst is not read"),
    Case(all_nodes_dead_at_once, {(lk.NO_STOP, node) for node in ALL}, True, NO_STOP),
    Case(killed_and_started_again, {(lk.KILLED, A)}, False, "has a gap between"),
    Case(running_nodes, {(lk.GOES_ON, node) for node in ALL}, False, "log of node aaaaaaaa goes"),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.make.__name__)
def test_what_the_audit_cannot_see_it_says(case: Case, tmp_path: Path) -> None:
    result, text = judged(case.make(tmp_path / "events"), tmp_path / "out")
    assert {(lack.kind, NODES.index(lack.node)) for lack in result.lacks} == case.lacks
    assert not result.is_whole
    assert result.is_partial == case.holes
    assert result.serious == 0
    assert "No job was lost" not in text
    assert "No loss is known" in text
    assert case.says in text


@pytest.mark.parametrize("old", [False, True])
def test_logs_that_lack_nothing_say_that_no_job_was_lost_in_their_time(
    old: bool, tmp_path: Path
) -> None:
    result, text = judged(lived(tmp_path / "events", old=old), tmp_path / "out")
    assert not result.lacks
    assert "No job was lost from 2026-11-21 19:40:00 to 2026-11-21 19:43:00" in text
    assert result.serious == 0


def test_a_log_that_has_grown_since_the_last_run_goes_on(tmp_path: Path) -> None:
    story = Story(tmp_path / "events", nodes=1)
    story.begin(A)
    story.work(1, A)
    first, _ = judged(story, tmp_path / "out")
    assert [lack.kind for lack in first.lacks] == [lk.NO_STOP]
    story.work(1, A)
    grown, text = judged(story, tmp_path / "out")
    assert grown.lacks == [Lack(lk.GOES_ON, NODES[A], story.at)]
    assert "and the logs go on" in text
    still, _ = judged(story, tmp_path / "out")
    assert [lack.kind for lack in still.lacks] == [lk.NO_STOP]
    story.stop(A)
    last, text = judged(story, tmp_path / "out")
    assert not last.lacks
    assert "No job was lost" in text


def test_a_node_that_joins_while_a_segment_is_written_needs_a_log(tmp_path: Path) -> None:
    story = Story(tmp_path / "events", nodes=1)
    story.begin(A)
    story.work(1, A)
    story.say(NODES[A], "segment", nodes=[*NODES[:2]])
    story.stop(A)
    result, text = judged(story, tmp_path / "out")
    assert result.lacks == [Lack(lk.NODE, NODES[B])]
    assert result.unknown == 0
    assert "1 of 2 nodes" in text


def test_a_policy_is_an_event_that_the_audit_knows(tmp_path: Path) -> None:
    story = Story(tmp_path / "events", nodes=1)
    story.begin(A)
    story.say(NODES[A], "policy", queue="q", client="admin", what="QSET ATTEMPTS 3")
    story.work(1, A)
    story.stop(A)
    result, _ = judged(story, tmp_path / "out")
    assert not result.lacks
    assert story.at == START + MINUTE
