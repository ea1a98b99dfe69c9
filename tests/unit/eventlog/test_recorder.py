"""The event log of a node, with real processes that write it."""

import errno
import os
import signal
from pathlib import Path

import pytest
import trio
import trio.testing

from disque_trio.eventlog import recorder
from disque_trio.eventlog.feed import Feed
from disque_trio.eventlog.recorder import TICK
from tests.support.eventlog_rig import Rig, running, until
from tests.support.harness import HANG_SECONDS


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not kill processes that a busy machine slows down."""
    monkeypatch.setattr(recorder, "STOP_SECONDS", HANG_SECONDS)


async def test_a_clean_stop_writes_everything_to_closed_files(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    async with running(rig):
        rig.source.make(100)
        await until(lambda: rig.value("events_written") == 100)
        rig.source.make(5000)
    assert rig.ids() == list(range(5100))
    assert not rig.child()
    assert not any(name.endswith(".open") for name in rig.names())


async def test_a_stop_before_the_process_has_started_loses_nothing(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    async with running(rig):
        rig.source.make(3)
    assert rig.ids() == [0, 1, 2]


async def test_a_process_that_has_just_died_does_not_prevent_the_last_writes(
    tmp_path: Path,
) -> None:
    rig = Rig(tmp_path)
    async with running(rig):
        rig.source.make(1)
        await until(lambda: rig.value("events_written") == 1)
        pid = rig.child()
        rig.source.make(1)
        os.kill(pid, signal.SIGKILL)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert rig.ids() == [0, 1]


class Looks(trio.abc.Instrument):
    """Counts the steps of all tasks."""

    def __init__(self) -> None:
        self.count = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.count += 1


async def test_a_log_with_nothing_to_write_is_idle(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    async with running(rig):
        for made in (1, 2):
            rig.source.make(1)
            await until(lambda made=made: rig.value("events_written") == made)
            await until(lambda: rig.source.sleepers == 1)
        rig.log.apply(rig.settings())
        pid = rig.child()
        os.kill(pid, signal.SIGKILL)
        await until(lambda: rig.child() not in (0, pid))
        rig.source.make(1)
        await until(lambda: rig.value("events_written") == 3)
        await until(lambda: rig.source.sleepers == 1)
        await trio.testing.wait_all_tasks_blocked()
        looks = Looks()
        trio.lowlevel.add_instrument(looks)
        await trio.sleep(5 * TICK)
        trio.lowlevel.remove_instrument(looks)
        assert looks.count <= 2  # steps of this task
    assert rig.ids() == [0, 1, 2]


async def test_info_describes_the_log(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    assert rig.log.info() == {
        "event_log_enabled": 0,
        "event_log_process_id": 0,
        "event_log_events_written": 0,
        "event_log_events_dropped": 0,
        "event_log_last_write_status": "ok",
    }
    async with running(rig):
        rig.source.make(2)
        await until(lambda: rig.value("events_written") == 2)
        assert rig.value("enabled") == 1
        assert [f"{rig.value('current_segment')}.open"] == rig.names()
        assert rig.value("current_size") == (tmp_path / rig.names()[0]).stat().st_size
        assert rig.value("buffer_length") == 0


async def test_a_killed_process_is_replaced_without_a_lost_or_repeated_line(
    tmp_path: Path,
) -> None:
    rig = Rig(tmp_path)
    async with running(rig):
        killed = [0]
        for _ in range(4):
            for _ in range(30):
                rig.source.make(1500)
                rig.log.turn()
                await trio.sleep(0)
            await until(lambda: rig.child() not in killed)
            written = rig.value("events_written")
            await until(lambda before=written: rig.value("events_written") != before)
            killed.append(rig.child())
            os.kill(killed[-1], signal.SIGKILL)
            rig.source.make(500)
        await until(lambda: rig.value("events_written") == rig.source.made)
    assert rig.ids() == list(range(rig.source.made))
    assert rig.value("events_dropped") == 0


@pytest.mark.slow
async def test_a_hung_process_costs_events_and_their_number_is_in_the_log(
    tmp_path: Path,
) -> None:
    rig = Rig(tmp_path, Feed(1 << 20))
    async with running(rig):
        rig.source.make(1)
        await until(lambda: rig.value("events_written") == 1)
        pid = rig.child()
        os.kill(pid, signal.SIGSTOP)
        for _ in range(100):
            rig.source.make(1000)
            rig.log.turn()
        dropped = rig.value("events_dropped")
        assert isinstance(dropped, int)
        assert 0 < dropped < 100_001
        os.kill(pid, signal.SIGCONT)
        await until(lambda: rig.value("events_written") == 100_001 - dropped)
        rig.source.make(1)
        await until(lambda: rig.value("events_written") == 100_002 - dropped)
    counts = [line["count"] for line in rig.lines() if line["event"] == "dropped"]
    assert counts == [dropped]
    assert len(rig.ids()) == len(set(rig.ids())) == 100_002 - dropped


async def test_a_stop_does_not_wait_for_a_hung_process(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    async with running(rig, 0.1):
        rig.source.make(1)
        await until(lambda: rig.value("events_written") == 1)
        pid = rig.child()
        os.kill(pid, signal.SIGSTOP)
        rig.source.make(1)
    os.kill(pid, signal.SIGCONT)
    # Nobody waits for it, but it still does its work.
    await until(lambda: rig.ids() == [0, 1])
    await until(lambda: not rig.child())


async def test_a_process_that_is_left_alone_at_the_end_notices(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.log.apply(rig.settings())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rig.log.run, rig.source.when_stirred)
        rig.source.make(1)
        await until(lambda: rig.value("events_written") == 1)
        nursery.cancel_scope.cancel()
    rig.log.abandon()
    await until(lambda: rig.ids() == [0])
    await until(lambda: not rig.child())


async def test_it_can_be_turned_off_and_on(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    async with running(rig):
        rig.source.make(3)
        await until(lambda: rig.value("events_written") == 3)
        rig.source.make(2)
        rig.log.apply(None)
        rig.source.make(10)
        await until(lambda: not rig.child())
        assert rig.ids() == list(range(5))
        assert rig.value("enabled") == 0
        rig.log.apply(rig.settings())
        rig.source.make(4)
        await until(lambda: rig.value("events_written") == 9)
        assert rig.child()
    assert rig.ids() == list(range(9))
    assert len(rig.names()) == 2


async def test_events_before_it_is_turned_off_are_written(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    async with running(rig):
        rig.source.make(3)
        rig.log.apply(None)
        rig.source.make(3)
        await until(lambda: rig.value("events_written") == 3)
        await until(lambda: not rig.child())
        assert rig.ids() == [0, 1, 2]


async def test_changed_settings_apply_from_the_next_file_on(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    async with running(rig):
        rig.source.make(3)
        await until(lambda: rig.value("events_written") == 3)
        pid = rig.child()
        rig.log.apply(rig.settings(compress=True))
        await until(lambda: rig.child() not in (pid, 0))
        rig.source.make(3)
        await until(lambda: rig.value("events_written") == 6)
    assert rig.ids() == [0, 1, 2]
    assert [name.endswith(".gz") for name in rig.names()] == [False, True]


async def test_the_signals_of_a_node_do_not_end_the_process(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    async with running(rig):
        rig.source.make(1)
        await until(lambda: rig.value("events_written") == 1)
        pid = rig.child()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            os.kill(pid, number)
        rig.source.make(1)
        await until(lambda: rig.value("events_written") == 2)
        assert rig.child() == pid


async def test_an_error_is_its_problem_and_the_node_continues(tmp_path: Path) -> None:
    blocked = tmp_path / "blocked"
    blocked.write_text("a file, no directory")
    rig = Rig(blocked)
    async with running(rig):
        rig.source.make(1)
        await until(lambda: rig.value("last_write_status") == "err")
        assert rig.log.problem
        rig.source.make(1)
        blocked.unlink()
        await until(lambda: rig.value("events_written") == 2)
        assert rig.value("last_write_status") == "ok"
        assert rig.log.problem == ""
    assert rig.ids() == [0, 1]


async def test_without_a_process_the_node_continues_and_retries(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    open_process = trio.lowlevel.open_process
    tries = 0

    async def none_at_first(*args: object, **options: object) -> trio.Process:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return await open_process(*args, **options)  # type: ignore[arg-type,call-overload,no-any-return]

    before = len(os.listdir("/proc/self/fd"))
    trio.lowlevel.open_process = none_at_first  # type: ignore[assignment]
    try:
        async with running(rig):
            rig.source.make(5)
            await until(lambda: rig.value("events_written") == 5)
    finally:
        trio.lowlevel.open_process = open_process
    assert rig.ids() == list(range(5))
    assert len(os.listdir("/proc/self/fd")) == before
