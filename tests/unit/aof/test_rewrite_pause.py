"""Renaming a rewritten file makes clients wait for the disk only where they wait anyway."""

import errno
import os
import threading
from pathlib import Path

import pytest
import trio
import trio.testing

from disque_trio.aof.disk import Disk
from disque_trio.aof.persistence import Persistence
from disque_trio.aof.rewriting import (
    JOBS_A_STEP,
    MAX_BACKOFF_SECONDS,
    MAX_URGENT_BACKOFF_SECONDS,
)
from disque_trio.config import Config
from disque_trio.process.logs import Logging
from tests.support.aof_disk import NoReplies
from tests.support.harness import HANG_SECONDS
from tests.support.node_bench import Bench


class WatchedDisk(Disk):
    """Records the calls made in the node's thread, and in any thread."""

    def __init__(self) -> None:
        self.node_thread = threading.get_ident()
        self.waited: list[str] = []
        self.calls: list[str] = []

    def _note(self, what: str) -> None:
        self.calls.append(what)
        if threading.get_ident() == self.node_thread:
            self.waited.append(what)

    def sync(self, fd: int) -> None:
        self._note("sync")
        super().sync(fd)

    def sync_directory(self, path: str) -> None:
        self._note("sync_directory")
        super().sync_directory(path)

    def replace(self, old: str, new: str) -> None:
        self._note("replace")
        super().replace(old, new)


async def rewritten(directory: Path, policy: str, compact: bool = False) -> WatchedDisk:
    """Rewrite the file by a dump, or let a process ``compact`` it; return the disk after the syncs
    that follow."""
    bench = Bench()
    bench.node.compactable = compact
    logging = Logging(path=str(directory / "log"))
    config = Config({"appendonly": True, "appendfilename": str(directory / "aof")})
    config.appendfsync = policy
    disk = WatchedDisk()
    persistence = Persistence(bench.node, config, logging.log, disk)
    persistence.file.open()
    disk.calls.clear()
    disk.waited.clear()
    try:
        with trio.fail_after(100):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(persistence.run, NoReplies())
                bench.add()
                assert persistence.turn()
                assert persistence.rewriting.want() is None
                while "replace" not in disk.calls:
                    await trio.sleep(0.01)
                while "sync_directory" not in disk.calls:
                    await trio.sleep(0.01)
                nursery.cancel_scope.cancel()
        info = persistence.info()
        assert info["aof_last_bgrewrite_status"] == info["aof_last_write_status"] == "ok"
        assert info["aof_state"] == "on"
        return disk
    finally:
        persistence.close()
        logging.close()


@pytest.mark.parametrize("policy", ["everysec", "no"])
async def test_both_syncs_of_a_rewrite_are_made_in_a_thread(
    tmp_path: Path, autojump_clock: trio.testing.MockClock, policy: str
) -> None:
    autojump_clock.autojump_threshold = 0.05
    disk = await rewritten(tmp_path, policy)
    named = disk.calls.index("replace")
    assert disk.waited == ["replace"]
    # The new file is synced before the rename; the file and its name after it.
    assert "sync" in disk.calls[:named]
    assert disk.calls[named + 1 :][:2] == ["sync", "sync_directory"]


async def test_so_are_those_of_a_compaction(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    autojump_clock.autojump_threshold = 0.05
    disk = await rewritten(tmp_path, "no", True)
    assert disk.waited == ["replace"]
    assert "sync" in disk.calls[: disk.calls.index("replace")]
    fds = [Path("/proc/self/fd") / name for name in os.listdir("/proc/self/fd")]
    assert not [fd for fd in fds if str(fd.resolve()).startswith(str(tmp_path))]


async def test_with_always_the_name_is_safe_before_the_next_reply(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    autojump_clock.autojump_threshold = 0.05
    disk = await rewritten(tmp_path, "always")
    named = disk.waited.index("replace")
    assert disk.waited[named - 1 :][:3] == ["sync", "replace", "sync_directory"]


async def test_what_was_confirmed_before_the_setting_became_always_is_synced_as_well(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    autojump_clock.autojump_threshold = 0.05
    bench = Bench()
    logging = Logging(path=str(tmp_path / "log"))
    config = Config({"appendonly": True, "appendfilename": str(tmp_path / "aof")})
    config.appendfsync = "no"
    disk = WatchedDisk()
    persistence = Persistence(bench.node, config, logging.log, disk)
    persistence.file.open()
    try:
        bench.add()
        assert persistence.turn()
        disk.calls.clear()
        config.appendfsync = "always"
        persistence.rewriting.apply()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(persistence.run, NoReplies())
            with trio.fail_after(HANG_SECONDS):
                while "sync" not in disk.calls:
                    await trio.sleep(0.1)
            nursery.cancel_scope.cancel()
    finally:
        persistence.close()
        logging.close()


@pytest.mark.parametrize(
    ("distrusted", "most"), [(False, MAX_BACKOFF_SECONDS), (True, MAX_URGENT_BACKOFF_SECONDS)]
)
async def test_a_rewrite_that_fails_is_soon_tried_again_if_no_jobs_are_added_until_then(
    tmp_path: Path, mock_clock: trio.testing.MockClock, distrusted: bool, most: float
) -> None:
    logging = Logging(path=str(tmp_path / "log"))
    config = Config({"appendonly": True, "appendfilename": str(tmp_path / "aof")})
    persistence = Persistence(Bench().node, config, logging.log)
    persistence.file.open()
    rewriting = persistence.rewriting
    try:
        assert persistence.file.writer is not None
        persistence.file.writer.distrusted = distrusted
        for _ in range(10):
            rewriting.give_up(OSError(errno.EIO, "Input/output error"))
        async with trio.open_nursery() as nursery:
            rewriting.wanted = True
            rewriting.start_if_due(nursery, most - 0.1)
            assert not rewriting.under_way
            rewriting.start_if_due(nursery, most)
            assert rewriting.under_way
    finally:
        persistence.close()
        logging.close()


async def test_info_says_for_how_long_a_rewrite_has_been_under_way(
    tmp_path: Path, mock_clock: trio.testing.MockClock
) -> None:
    bench = Bench()
    bench.node.compactable = False
    logging = Logging(path=str(tmp_path / "log"))
    config = Config({"appendonly": True, "appendfilename": str(tmp_path / "aof")})
    persistence = Persistence(bench.node, config, logging.log)
    persistence.file.open()
    rewriting = persistence.rewriting
    for _ in range(2 * JOBS_A_STEP):
        bench.add()
    try:
        mock_clock.jump(100)
        assert rewriting.info()["aof_current_rewrite_time_sec"] == -1
        async with trio.open_nursery() as nursery:
            rewriting.want()
            rewriting.start_if_due(nursery, trio.current_time())
            while persistence.file.new is None:
                await trio.lowlevel.checkpoint()
            mock_clock.jump(7)
            assert rewriting.info()["aof_current_rewrite_time_sec"] == 7
        assert rewriting.info()["aof_current_rewrite_time_sec"] == -1
        assert rewriting.info()["aof_last_rewrite_time_sec"] == 7
    finally:
        persistence.close()
        logging.close()
