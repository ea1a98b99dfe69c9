"""Stacks become a flame graph, and the steps of a command are measured."""

import re
import xml.dom.minidom
from collections import Counter
from contextlib import closing
from itertools import count

import pytest

from tools.bench.flames import draw, read_stacks, shares
from tools.bench.inprocess import EVENT_COMMANDS, JOB_COMMANDS, Desk, make_node, request
from tools.bench.steps import STEPS, measure, steps_table

LINES = [
    "0x7f00 (libc.so.6);main (disque_trio/node/main.py:90);run (trio/_core/_run.py:1);"
    "serve (disque_trio/respserver/io/loop.py:19);"
    "Engine.turn (disque_trio/respserver/io/engine.py:223);"
    "CPyPy_request___RequestParser___feed (__native_1.c:5);"
    "CPyDef_request___RequestParser___feed (__native_1.c:9) 3",
    "0x7f00 (libc.so.6);main (disque_trio/node/main.py:90);run (trio/_core/_run.py:1);"
    "serve (disque_trio/respserver/io/loop.py:19);"
    "Engine.turn (disque_trio/respserver/io/engine.py:224);"
    "send (libc.so.6) 1",
]
RUN, TURN = "serve (respserver/io/loop.py)", "Engine.turn (respserver/io/engine.py)"
FEED = "request.RequestParser.feed (compiled)"


def test_stacks_begin_with_the_engine_and_lines_of_one_function_are_one_frame() -> None:
    assert read_stacks(LINES) == {(RUN, TURN, FEED): 3, (RUN, TURN, "send (libc.so.6)"): 1}


def test_a_stack_outside_of_the_engine_is_kept_whole() -> None:
    stacks = read_stacks(["main (disque_trio/node/main.py:90);sleep (trio/_timeouts.py:1) 2"])
    assert stacks == {("main (node/main.py)", "sleep (trio/_timeouts.py)"): 2}


def test_threads_that_wait_for_work_are_left_out() -> None:
    thread = "WorkerThread._work (trio/_core/_thread_cache.py:1)"
    waiting = "PyThread_acquire_lock_timed (libpython3.11.so.1.0)"
    stacks = read_stacks(
        [f"{thread};{waiting} 5", f"{thread};fsync (libc.so.6) 2", f"a;{waiting} 1"]
    )
    assert stacks.total() == 3


def test_what_a_header_has_is_a_part_of_the_function_that_uses_it() -> None:
    frames = "CPyDef_jobs___addjob (__native_1.c:5);Py_DECREF (object.h:1);send (libc.so.6) 1"
    assert list(read_stacks([frames])) == [("jobs.addjob (compiled)", "send (libc.so.6)")]


def test_a_line_that_is_not_a_stack_is_an_error() -> None:
    with pytest.raises(ValueError, match="not a stack"):
        read_stacks(["7"])


def test_a_box_is_as_wide_as_its_function_was_often_seen() -> None:
    picture = draw(read_stacks(LINES), "A <title>")
    xml.dom.minidom.parseString(picture)
    boxes = re.findall(
        r"<title>(.*?): (.*?)%</title><rect x=\S+ y=\"(\d+)\" width=\"(.*?)\"", picture
    )
    widths = {name: (float(share), float(width)) for name, share, _, width in boxes}
    assert widths[RUN] == widths[TURN] == (100, 1180)
    assert widths[FEED] == (75, 885)
    assert widths["send (libc.so.6)"] == (25, 295)
    rows = {name: int(y) for name, _, y, _ in boxes}
    assert rows[RUN] < rows[TURN] < rows[FEED]


def test_drawing_no_stacks_is_an_error() -> None:
    with pytest.raises(ValueError, match="no stacks"):
        draw(Counter(), "nothing")


def test_the_innermost_functions_are_told_with_their_shares() -> None:
    assert shares(read_stacks(LINES), 1) == [(FEED, 0.75)]


def test_each_step_of_each_command_is_measured() -> None:
    rows = measure(2, (2,))
    assert [row.command for row in rows] == [*JOB_COMMANDS, *EVENT_COMMANDS]
    for row in rows:
        assert list(row.steps) == list(STEPS)
        assert all(cost >= 0 for cost in row.steps.values())
        assert min(row.steps[step] for step in ("recv", "parse", "dispatch", "encode", "send")) > 0
        assert row.turn > 0
    assert len(steps_table(rows).splitlines()) == 2 + len(rows)


def test_a_turn_ends_when_all_is_served_however_long_each_command_takes() -> None:
    clients = 10
    with closing(Desk(make_node(clock=count(step=1_000_000_000).__next__), clients)) as desk:
        desk.send(request(b"QLEN", b"q"))
        desk.turn()
        assert desk.replies() == [0] * clients
