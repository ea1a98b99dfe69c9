"""The process that looks after the others, with programs that only say what nodes say."""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from disque_trio.server import processes
from disque_trio.server.logs import Logging
from disque_trio.server.processes import Processes
from disque_trio.server.siblings import VARIABLE
from disque_trio.server.systemd import Notifier

# Each appends its number to the file that it gets, may say that it serves, and ends as told.
PROGRAM = """
import os, signal, socket, sys
sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
with open(sys.argv[1], "a") as file:
    file.write(os.environ["DISQUE_PROCESS"] + "\\n")
if sys.argv[2] != "mute":
    sock.sendto(b"READY=1\\nSTATUS=x", os.environ["NOTIFY_SOCKET"])
if sys.argv[3] == "stay":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    sys.stdin.read()
sys.exit(int(sys.argv[3]))
"""


class Run:
    """Programs that are looked after.

    Attributes:
        starts: the file with a line for each start.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.starts = directory / "starts"
        self.starts.touch()
        self.logging = Logging(path=str(directory / "log"))

    def numbers(self) -> list[str]:
        return self.starts.read_text().split("\n")[:-1]

    def make(self, *words: str, count: int = 2, once: bool = False) -> Processes:
        command = [sys.executable, "-c", PROGRAM, str(self.starts), *words]
        directory, log = self.directory, self.logging.log
        return Processes(command, directory, count, directory, once, (), Notifier(), log)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    it = Run(tmp_path)
    yield it
    it.logging.close()


async def test_a_program_that_never_serves_is_not_tried_again(run: Run) -> None:
    with trio.fail_after(20):
        assert await run.make("mute", "3", count=1).run() == 1
    assert run.numbers() == ["0"]


async def test_the_orderly_end_of_one_is_the_end_of_all(run: Run) -> None:
    with trio.fail_after(20):
        assert await run.make("serve", "0").run() == 0
    assert set(run.numbers()) <= {"0", "1"}


async def test_a_program_that_fails_is_started_again_after_longer_and_longer_pauses(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "FIRST_PAUSE", 0.02)
    looked_after = run.make("serve", "3", count=1, once=True)
    started = trio.current_time()
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(looked_after.run)
            while len(run.numbers()) < 5:  # pauses of 20, 40, 80 and 160 ms are between them
                await trio.sleep(0.01)
            os.kill(os.getpid(), signal.SIGTERM)
    assert trio.current_time() - started >= 0.3
    # What is to be done once is done at the first start.
    assert run.numbers()[:5] == ["0 once", "0", "0", "0", "0"]


async def test_directories_are_made_for_all_but_the_first(run: Run) -> None:
    with trio.fail_after(20):
        await run.make("serve", "0", count=3).run()
    assert sorted(path.name for path in run.directory.iterdir() if path.is_dir()) == ["1", "2"]


async def test_a_signal_ends_all_in_good_order(run: Run) -> None:
    looked_after = run.make("serve", "stay", count=3)
    results: list[int] = []

    async def collect() -> None:
        results.append(await looked_after.run())

    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(collect)
            while len(run.numbers()) < 3:
                await trio.sleep(0.01)
            os.kill(os.getpid(), signal.SIGTERM)
    assert results == [0]
    assert sorted(run.numbers()) == ["0", "1", "2"]
    assert VARIABLE not in os.environ
