"""A hanging disk is reported and does not stop the node."""

import threading
from pathlib import Path

import trio
import trio.testing

from disque_trio.aof.disk import Disk
from disque_trio.aof.persistence import Persistence
from disque_trio.config import Config
from disque_trio.process.logs import Logging
from tests.support.aof_disk import NoReplies
from tests.support.node_bench import Bench


class HangingDisk(Disk):
    def __init__(self) -> None:
        self.hang = threading.Event()
        self.go_on = threading.Event()

    def sync(self, fd: int) -> None:
        self.hang.set()
        self.go_on.wait(20)


async def test_a_sync_that_hangs_is_told_while_turns_go_on(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    autojump_clock.autojump_threshold = 0.05
    bench = Bench()
    logging = Logging(path=str(tmp_path / "log"))
    config = Config({"appendonly": True, "appendfilename": str(tmp_path / "aof")})
    disk = HangingDisk()
    persistence = Persistence(bench.node, config, logging.log, disk)
    persistence.file.open()
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(persistence.run, NoReplies())
            bench.add()
            assert persistence.turn()
            await trio.to_thread.run_sync(disk.hang.wait, 20)
            await trio.sleep(5)
            info = persistence.info()
            assert info["aof_delayed_fsync"] == 1
            assert int(info["aof_fsync_behind_sec"]) >= 2
            bench.add()
            assert persistence.turn()
            disk.go_on.set()
            while persistence.info()["aof_fsync_behind_sec"]:
                await trio.sleep(0.1)
            nursery.cancel_scope.cancel()
    finally:
        disk.go_on.set()
        persistence.close()
        logging.close()
