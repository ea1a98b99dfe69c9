"""The supervisor, with programs that only send the notifications of a node."""

import errno
import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trio
import trio.testing

from disque_trio.node import supervisor
from disque_trio.node.supervisor import Sockets, Supervisor
from disque_trio.node.worker import VARIABLE
from disque_trio.process import fleet
from disque_trio.process.logs import Logging
from disque_trio.process.process import make_directory, pidfile
from disque_trio.process.systemd import Notifier
from tests.support.harness import HANG_SECONDS

# Each appends its number to the given file, may report READY, and exits as told.
# "stops": number 1 reports STOPPING, and goes on until its gate is opened, as number 0 does.
# "hangup": they record each SIGHUP. Number 1 does so, and reports READY, once its gate is opened.
PROGRAM = """
import os, select, signal, socket, sys
sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
number = os.environ["DISQUE_PROCESS"]
def write(word):
    with open(sys.argv[1], "a") as file:
        file.write(word + "\\n")
def say(word):
    sock.sendto(word.encode(), "\\0" + os.environ["NOTIFY_SOCKET"][1:])
def wait():
    open(sys.argv[1] + number).read()
write(number)
if sys.argv[2] == "hangup":
    if number == "1":
        wait()
    signal.signal(signal.SIGHUP, lambda *_: write(number + " hangup"))
if sys.argv[2] != "mute":
    say("READY=1\\nSTATUS=x")
if sys.argv[2] == "stops":
    if number == "1":
        signal.signal(signal.SIGTERM, lambda *_: os._exit(1))
        say("STOPPING=1")
        write("1 stops")
    wait()
if sys.argv[3] == "stay":
    # A read would not see a signal that comes just before it; what the signal writes is seen.
    woken, wakes = socket.socketpair()
    wakes.setblocking(False)
    signal.set_wakeup_fd(wakes.fileno())
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    while sys.stdin not in select.select([sys.stdin, woken], [], [])[0]:
        woken.recv(1)
sys.exit(int(sys.argv[3]))
"""


class Run:
    """Supervised programs.

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

    def make(
        self,
        *words: str,
        count: int = 2,
        once: bool = False,
        notifier: Notifier | None = None,
        pidfile: str = "",
    ) -> Supervisor:
        command = [sys.executable, "-c", PROGRAM, str(self.starts), *words]
        directory, log = self.directory, self.logging
        notifier = notifier or Notifier()
        return Supervisor(
            command, directory, count, directory, once, Sockets(), notifier, log, pidfile
        )

    def make_gates(self) -> None:
        for number in range(2):
            os.mkfifo(f"{self.starts}{number}")

    async def open_gate(self, number: int) -> None:
        """Release the program that waits at its gate, or soon will."""
        while True:
            try:
                os.close(os.open(f"{self.starts}{number}", os.O_WRONLY | os.O_NONBLOCK))
                return
            except OSError as problem:
                if problem.errno != errno.ENXIO:
                    raise
            await trio.sleep(0.01)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    it = Run(tmp_path)
    yield it
    it.logging.close()


async def test_a_program_that_never_serves_is_not_restarted(run: Run) -> None:
    with trio.fail_after(HANG_SECONDS):
        assert await run.make("mute", "3", count=1).run() == 1
    assert run.numbers() == ["0"]


async def test_the_orderly_end_of_one_is_the_end_of_all(run: Run) -> None:
    with trio.fail_after(HANG_SECONDS):
        assert await run.make("serve", "0").run() == 0
    assert set(run.numbers()) <= {"0", "1"}


async def test_a_program_that_fails_is_started_again_after_longer_and_longer_pauses(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet, "FIRST_PAUSE", 0.02)
    looked_after = run.make("serve", "3", count=1, once=True)
    started = trio.current_time()
    with trio.fail_after(HANG_SECONDS):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(looked_after.run)
            while len(run.numbers()) < 5:  # after pauses of 20, 40, 80 and 160 ms
                await trio.sleep(0.01)
            os.kill(os.getpid(), signal.SIGTERM)
    assert trio.current_time() - started >= 0.3
    # One-time work is only done at the first start.
    assert run.numbers()[:5] == ["0 once", "0", "0", "0", "0"]


async def test_a_signal_ends_a_pause(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet, "FIRST_PAUSE", 10 * HANG_SECONDS)
    monkeypatch.setattr(fleet, "LAST_PAUSE", 10 * HANG_SECONDS)
    log = run.directory / "log"
    with trio.fail_after(HANG_SECONDS):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run.make("serve", "3", count=1).run)
            while "has ended and is restarted" not in log.read_text():
                await trio.sleep(0.01)
            os.kill(os.getpid(), signal.SIGTERM)
    assert run.numbers() == ["0"]


async def test_directories_are_made_for_all_but_the_first(run: Run) -> None:
    with trio.fail_after(HANG_SECONDS):
        await run.make("serve", "0", count=3).run()
    assert sorted(path.name for path in run.directory.iterdir() if path.is_dir()) == ["1", "2"]


async def test_a_signal_ends_all_cleanly(run: Run) -> None:
    looked_after = run.make("serve", "stay", count=3)
    results: list[int] = []

    async def collect() -> None:
        results.append(await looked_after.run())

    with trio.fail_after(HANG_SECONDS):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(collect)
            while len(run.numbers()) < 3:
                await trio.sleep(0.01)
            os.kill(os.getpid(), signal.SIGTERM)
    assert results == [0]
    assert sorted(run.numbers()) == ["0", "1", "2"]
    assert VARIABLE not in os.environ


# ---- what the system refuses --------------------------------------------------------------------


def refuse(monkeypatch: pytest.MonkeyPatch, refused: Callable[[str, int], bool]) -> None:
    """Fail each start for which ``refused`` (the number, the count of starts so far) is true."""
    real = subprocess.Popen
    starts = 0

    def popen(command: list[str], **more: object) -> object:
        nonlocal starts
        starts += 1
        environ = more["env"]
        assert isinstance(environ, dict)
        if refused(environ[VARIABLE], starts):
            raise BlockingIOError(errno.EAGAIN, "no room for one more")
        return real(command, **more)  # type: ignore[call-overload]

    monkeypatch.setattr(supervisor.subprocess, "Popen", popen)


async def test_a_failed_first_start_ends_all_cleanly(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse(monkeypatch, lambda number, _: number == "1")
    with trio.fail_after(HANG_SECONDS), pytest.raises(BlockingIOError, match="no room"):
        await run.make("serve", "stay").run()


async def test_what_cannot_be_started_again_is_tried_until_it_can(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet, "FIRST_PAUSE", 0.01)
    refuse(monkeypatch, lambda _, starts: starts in (2, 3))
    looked_after = run.make("serve", "3", count=1)
    with trio.fail_after(HANG_SECONDS):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(looked_after.run)
            while len(run.numbers()) < 2:
                await trio.sleep(0.01)
            os.kill(os.getpid(), signal.SIGTERM)


async def test_the_processes_end_by_themselves_if_their_supervisor_fails(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[subprocess.Popen[bytes]] = []
    real = Supervisor._start

    def start(self: Supervisor, number: int, address: str, messages: socket.socket) -> object:
        process = real(self, number, address, messages)
        started.append(process.popen)
        return process

    async def fail(self: Supervisor) -> None:
        while len(run.numbers()) < 2:
            await trio.sleep(0.01)
        raise RuntimeError

    monkeypatch.setattr(Supervisor, "_start", start)
    monkeypatch.setattr(Supervisor, "_watch_health", fail)
    with trio.fail_after(HANG_SECONDS), pytest.raises(ExceptionGroup):
        await run.make("mute", "stay").run()
    # Their input ended, so they ran on to the error in their last line.
    assert [popen.returncode for popen in started] == [1, 1]


# ---- signals ------------------------------------------------------------------------------------


async def wait_for_lines(run: Run, *lines: str) -> None:
    while not set(lines) <= set(run.numbers()):
        await trio.sleep(0.01)


class Manager:
    """Receives the notifications to systemd."""

    def __init__(self) -> None:
        name = f"disque-test-{os.getpid()}-{os.urandom(4).hex()}"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(f"\0{name}")
        self.notifier = Notifier({"NOTIFY_SOCKET": f"@{name}"})

    async def wait_for(self, message: str) -> None:
        while True:
            await trio.lowlevel.wait_readable(self._socket)
            if self._socket.recv(4096) == message.encode():
                return

    def close(self) -> None:
        self.notifier.close()
        self._socket.close()


@pytest.fixture
def manager() -> Iterator[Manager]:
    it = Manager()
    yield it
    it.close()


@pytest.mark.parametrize("again", [False, True])
async def test_a_process_that_stops_already_hears_only_of_a_second_signal(
    run: Run, manager: Manager, again: bool
) -> None:
    run.make_gates()
    looked_after = run.make("stops", "0", notifier=manager.notifier)
    results: list[int] = []

    async def collect() -> None:
        results.append(await looked_after.run())

    with trio.fail_after(HANG_SECONDS):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(collect)
            await wait_for_lines(run, "0", "1 stops")
            await manager.wait_for("READY=1")
            os.kill(os.getpid(), signal.SIGTERM)
            await manager.wait_for("STOPPING=1")
            if again:
                os.kill(os.getpid(), signal.SIGTERM)
            else:
                await run.open_gate(1)
    assert results == [int(again)]


async def test_a_process_that_starts_gets_sighup_when_it_serves(run: Run) -> None:
    run.make_gates()
    looked_after = run.make("hangup", "stay")
    with trio.fail_after(HANG_SECONDS):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(looked_after.run)
            await wait_for_lines(run, "0", "1")
            while not any(p.ready for p in looked_after._running.values()):
                await trio.sleep(0.01)
            os.kill(os.getpid(), signal.SIGHUP)
            await wait_for_lines(run, "0 hangup")
            await run.open_gate(1)
            await wait_for_lines(run, "1 hangup")
            os.kill(os.getpid(), signal.SIGTERM)
    assert sorted(run.numbers()) == ["0", "0 hangup", "1", "1 hangup"]


# ---- what is there while they run ---------------------------------------------------------------


async def test_messages_from_other_senders_are_ignored(run: Run) -> None:
    looked_after = run.make("mute", "stay", count=1)
    with trio.fail_after(HANG_SECONDS):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(looked_after.run)
            await wait_for_lines(run, "0")
            (process,) = looked_after._running.values()
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as stranger:
                stranger.sendto(b"READY=1", process.messages.getsockname())
            await trio.testing.wait_all_tasks_blocked()
            assert not process.ready
            os.kill(os.getpid(), signal.SIGTERM)


async def test_the_pidfile_is_there_while_they_serve(run: Run) -> None:
    file = run.directory / "pid"
    looked_after = run.make("serve", "stay", pidfile=str(file))
    with trio.fail_after(HANG_SECONDS):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(looked_after.run)
            while not file.exists():
                await trio.sleep(0.01)
            assert file.read_text() == f"{os.getpid()}\n"
            os.kill(os.getpid(), signal.SIGTERM)
    assert not file.exists()


@pytest.mark.parametrize("words", [("mute", "3"), ("serve", "0")])
async def test_the_pidfile_of_another_server_stays(run: Run, words: tuple[str, str]) -> None:
    file = run.directory / "pid"
    file.write_text("1\n")
    with trio.fail_after(HANG_SECONDS):
        await run.make(*words, count=1, pidfile=str(file)).run()
    if words[0] == "mute":
        assert file.read_text() == "1\n"
    else:
        assert not file.exists()  # it is ready, so the other one is gone


async def test_a_pidfile_that_cannot_be_written_ends_all(run: Run) -> None:
    with trio.fail_after(HANG_SECONDS), pytest.raises(FileNotFoundError):
        await run.make("serve", "stay", pidfile=str(run.directory / "nowhere" / "pid")).run()


def test_a_pidfile_that_another_process_has_written_since_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    with pidfile(str(file)):
        file.write_text("1\n")
    assert file.read_text() == "1\n"


def test_a_directory_that_is_made_is_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[int, bool]] = []

    def fsync(descriptor: int) -> None:
        status = os.fstat(descriptor)
        synced.append((status.st_ino, (tmp_path / "1").exists()))
        assert stat.S_ISDIR(status.st_mode)

    monkeypatch.setattr(os, "fsync", fsync)
    make_directory(tmp_path / "1")
    make_directory(tmp_path / "1")
    assert synced == [(tmp_path.stat().st_ino, True)]
