"""The log marks its beginning and where it is complete."""

import json
import marshal
import os
import signal
from pathlib import Path

from disque_trio.eventlog.child import HEAD
from disque_trio.eventlog.feed import Feed
from tests.support.eventlog_rig import NODE, Rig, running, until
from tests.support.harness import HANG_SECONDS

NOW = 1_795_290_000_000


def heads(rig: Rig) -> list[dict[str, object]]:
    """The lines of the closed files about the files themselves."""
    names = [name for name in rig.names() if name.endswith(".jsonl")]
    texts = [(rig.directory / name).read_text() for name in names]
    lines = map(json.loads, "".join(texts).splitlines())
    return [line for line in lines if line["event"] == "segment"]


def told(rig: Rig) -> list[tuple[object, object]]:
    return [(line["event"], line["time"]) for line in rig.lines()]


async def test_the_first_line_marks_the_beginning_and_the_last_that_the_log_is_complete(
    tmp_path: Path,
) -> None:
    rig = Rig(tmp_path)
    async with running(rig):
        rig.source.make(2)
        await until(lambda: rig.value("events_written") == 2)
        rig.source.now = NOW + 9
    assert told(rig) == [
        ("started", NOW),
        ("queued", NOW),
        ("queued", NOW),
        ("stopped", NOW + 9),
    ]


async def test_the_log_begins_with_the_first_event_and_not_with_the_turn_that_passes_it_on(
    tmp_path: Path,
) -> None:
    rig = Rig(tmp_path)
    rig.source.now = 0  # no turn yet
    async with running(rig):
        rig.source.now = NOW
        rig.source.make(1)
        rig.source.now = NOW + 70
    assert told(rig)[0] == ("started", NOW)


async def test_the_log_of_a_node_that_dies_is_not_marked_complete(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.log.apply(rig.settings())
    rig.source.make(1)
    rig.log.turn()
    feed = rig.log._feed
    assert [marshal.loads(batch[HEAD.size :])[0][1] for batch in feed._unsent] == [
        "started",
        "queued",
    ]


async def test_a_log_that_is_turned_off_is_complete_up_to_then(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    async with running(rig):
        rig.source.make(1)
        rig.source.now = NOW + 1
        rig.log.apply(None)
        rig.source.now = NOW + 5
        rig.log.apply(rig.settings())
        rig.source.make(1)
        rig.source.now = NOW + 7
    assert told(rig) == [
        ("started", NOW),
        ("queued", NOW),
        ("stopped", NOW + 1),
        ("started", NOW + 5),
        ("queued", NOW + 5),
        ("stopped", NOW + 7),
    ]


async def test_other_settings_and_another_process_are_not_a_new_beginning(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    async with running(rig):
        rig.source.make(1)
        await until(lambda: rig.value("events_written") == 1)
        rig.log.apply(rig.settings(size=2 << 20))
        await until(lambda: len(rig.lines()) == 2)
        rig.source.make(1)
        await until(lambda: rig.value("events_written") == 2)
        pid = rig.child()
        os.kill(pid, signal.SIGKILL)
        await until(lambda: rig.child() not in (0, pid))
    assert [event for event, _ in told(rig)] == ["started", "queued", "queued", "stopped"]


def test_missing_events_are_reported_before_the_log_is_marked_complete() -> None:
    feed = Feed(limit=1)
    feed.add([(NOW, "queued", b"q", "add"), b"D-1"], NOW)
    feed.add([(NOW, "queued", b"q", "add"), b"D-2"], NOW)
    feed.mark("stopped", NOW + 3)
    said = [event for batch in feed._unsent for event in marshal.loads(batch[HEAD.size :])]
    assert said[2:] == [(NOW + 3, "dropped", 1), (NOW + 3, "stopped")]
    assert feed.dropped == 1


async def test_the_first_line_says_since_when_the_node_runs_and_since_when_it_writes_its_log(
    tmp_path: Path,
) -> None:
    rig = Rig(tmp_path)
    async with running(rig):
        rig.source.make(1)
        await until(lambda: rig.value("events_written") == 1)
        rig.source.now = NOW + 1
        rig.log.apply(None)
        rig.source.now = NOW + 5
        rig.log.apply(rig.settings(size=2 << 20))
        rig.source.make(1)
        await until(lambda: rig.value("events_written") == 2)
    facts = {(head["up"], head["since"], head["run"]) for head in heads(rig) if "name" in head}
    assert (NOW, NOW + 5, "ab12") in facts
    assert facts <= {(NOW, NOW, "ab12"), (NOW, NOW + 5, "ab12")}
    reasons = [line["reason"] for line in rig.lines() if line["event"] == "stopped"]
    assert reasons == ["switched-off", "shutdown"]


async def test_a_log_that_is_switched_on_late_says_that_the_node_runs_for_longer(
    tmp_path: Path,
) -> None:
    rig = Rig(tmp_path)
    rig.log.runs(NOW - 900)
    async with running(rig):
        rig.source.make(1)
    (head,) = heads(rig)
    assert (head["up"], head["since"]) == (NOW - 900, NOW)


async def test_a_log_from_the_beginning_is_as_old_as_its_node(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.source.now = 0
    async with running(rig):
        rig.log.runs(NOW)
        rig.source.now = NOW + 3
        rig.source.make(1)
    (head,) = heads(rig)
    assert (head["up"], head["since"]) == (NOW + 3, NOW + 3)


async def test_the_log_names_the_nodes_of_the_cluster_and_those_that_come_and_go(
    tmp_path: Path,
) -> None:
    rig = Rig(tmp_path)
    async with running(rig):
        rig.source.make(1)
        await until(lambda: rig.value("events_written") == 1)
        rig.log.cluster_changed()  # for another reason
        rig.nodes.append("b" * 40)
        rig.log.cluster_changed()
        rig.source.make(1)
        await until(lambda: rig.value("events_written") == 2)
        pid = rig.child()
        os.kill(pid, signal.SIGKILL)
        await until(lambda: rig.child() not in (0, pid))
        rig.source.make(1)
    found = [(bool(head.get("name")), head["nodes"]) for head in heads(rig)]
    assert found == [(True, [NODE]), (False, rig.nodes), (True, rig.nodes)]


async def test_the_log_of_a_node_that_restarts_says_so(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.log.apply(rig.settings())
    rig.source.make(1)
    await rig.log.close(HANG_SECONDS, restarts=True)
    rig.log.abandon()
    assert [line.get("reason") for line in rig.lines()] == [None, "add", "restart"]
