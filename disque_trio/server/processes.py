"""The process that looks after the others, where a server has several (``processes``).

It serves nobody. Each process is a node of its own, started with the same command line; they find
each other (``server.cluster``). Here they are started, listened to, and started again; signals are
passed on, and systemd is told how all of them are. A process that ends in good order, by SHUTDOWN
or a signal of its own, ends all of them. If this process is killed the others see the end of their
standard input, and stop.

One task a process, one for the signals, one for the watchdogs.
"""

import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import trio

from disque_trio.server.logs import Log
from disque_trio.server.siblings import VARIABLE, announce
from disque_trio.server.systemd import Notifier

FIRST_PAUSE, LAST_PAUSE = 0.1, 10.0  # s before a process that ended is started again
LONG_RUN = 60.0  # s after which the pauses are short again
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)


class Process:
    """One of the processes.

    Attributes:
        number: counted from 0.
        ready: it has served. rests: it says that it stops or starts anew, which may take a while.
        hung: how often the watchdog has tried to end it.
        heard: when it last said that it is well (trio's time), or became ready.
        ended: set when it is gone.
    """

    __slots__ = ("ended", "heard", "hung", "lifeline", "number", "popen", "ready", "rests")

    def __init__(self, number: int, popen: "subprocess.Popen[bytes]", lifeline: int) -> None:
        self.number = number
        self.popen = popen
        self.lifeline = lifeline  # the end of its standard input that is held open here
        self.ready = False
        self.rests = False
        self.hung = 0
        self.heard = 0.0
        self.ended = trio.Event()


class Processes:
    """All of them.

    Args:
        command: starts one, in the directory ``cwd``.
        count: how many.
        directory: of the first one; the others have directories in it.
        once: jobs are to be put back into their queues at the first start.
        passed: listening sockets that the first one gets.
    """

    def __init__(
        self,
        command: Sequence[str],
        cwd: Path,
        count: int,
        directory: Path,
        once: bool,
        passed: Sequence[socket.socket],
        notifier: Notifier,
        log: Log,
    ) -> None:
        self._command = list(command)
        self._cwd = cwd
        self._count = count
        self._directory = directory
        self._once = once
        self._passed = passed
        self._notifier = notifier
        self._log = log
        self._running: dict[int, Process] = {}
        self._served: set[int] = set()  # those that have been ready
        self._stopping = trio.Event()
        self._status = 0
        self._messages = Path()

    async def run(self) -> int:
        """Run all of them to the end; returns the exit status.

        Raises:
            OSError: a directory cannot be made, or the program cannot be started.
        """
        self._make_directories()
        with tempfile.TemporaryDirectory(prefix="disque-") as messages:
            self._messages = Path(messages)
            async with trio.open_nursery() as nursery:
                await nursery.start(self._watch_signals)
                nursery.start_soon(self._watch_health)
                async with trio.open_nursery() as keeping:
                    for number in range(self._count):
                        keeping.start_soon(self._keep, number)
                nursery.cancel_scope.cancel()
        self._log.notice("all processes have ended", status=self._status)
        return self._status

    def _make_directories(self) -> None:
        for number in range(1, self._count):
            Path(self._directory, str(number)).mkdir(exist_ok=True)

    def _stop(self, reason: str, status: int = 0) -> None:
        """Let all of them end in good order."""
        if not self._stopping.is_set():
            self._log.notice("stopping all processes", reason=reason)
            self._notifier.stopping()
            self._stopping.set()
            self._status = status
        self._pass_on(signal.SIGTERM)

    def _pass_on(self, number: int) -> None:
        for process in self._running.values():
            process.popen.send_signal(number)

    async def _watch_signals(
        self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        with trio.open_signal_receiver(*_SIGNALS) as signals:
            task_status.started()
            async for number in signals:
                if number == signal.SIGCHLD:
                    for process in self._running.values():
                        if process.popen.poll() is not None:
                            process.ended.set()
                elif number == signal.SIGHUP:
                    self._notifier.reloading()
                    self._pass_on(number)
                    self._notifier.reloaded()
                else:
                    # A second one is the processes' business, too: they end at once then.
                    self._stop(signal.Signals(number).name)

    # ---- one process ----------------------------------------------------------------------------

    async def _keep(self, number: int) -> None:
        """Run process ``number``, again and again, until all are to end."""
        pause = FIRST_PAUSE
        while not self._stopping.is_set():
            started = trio.current_time()
            status = await self._run(number)
            if self._stopping.is_set():
                if status not in (0, -signal.SIGTERM):  # that came before it could listen to it
                    self._status = 1
                return
            if status == 0:
                self._stop(f"process {number} was stopped")
                return
            if number not in self._served:
                # It never worked: its own words are in the log, and trying again mends nothing.
                self._stop(f"process {number} cannot start", 1)
                self._notifier.status(f"process {number} cannot start: see the log")
                return
            if trio.current_time() - started > LONG_RUN:
                pause = FIRST_PAUSE
            self._log.warning(
                "a process has ended and is started again",
                process=number,
                status=status,
                pause=pause,
            )
            self._tell()
            with trio.move_on_after(pause):
                await self._stopping.wait()
            pause = min(2 * pause, LAST_PAUSE)

    async def _run(self, number: int) -> int:
        """Start process ``number`` and wait for its end; returns its exit status."""
        address = self._messages / str(number)
        address.unlink(missing_ok=True)
        with trio.socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as messages:
            await messages.bind(os.fspath(address))
            if self._stopping.is_set():
                return 0
            process = self._start(number, address)
            self._running[number] = process
            try:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._hear, process, messages)
                    # It may have ended before it was known here.
                    if process.popen.poll() is None:
                        await process.ended.wait()
                    nursery.cancel_scope.cancel()
            finally:
                del self._running[number]
                os.close(process.lifeline)
                if process.popen.poll() is None:  # only when this process fails
                    process.popen.kill()
                process.popen.wait()
        return process.popen.returncode

    def _start(self, number: int, address: Path) -> Process:
        once = self._once and number not in self._served
        environ = {**os.environ, VARIABLE: announce(number, once), "NOTIFY_SOCKET": str(address)}
        if self._notifier.watchdog:
            environ["WATCHDOG_USEC"] = str(int(self._notifier.watchdog * 1e6))
        passed = [] if number else [sock.fileno() for sock in self._passed]
        if passed:
            environ["LISTEN_FDS"] = str(len(passed))
        # A process of its own, not a thread's child: its end must not hang on a thread's. And not
        # in this process's group, so that Ctrl-C reaches it through here, once.
        source, lifeline = os.pipe()
        try:
            popen = subprocess.Popen(
                self._command,
                stdin=source,
                cwd=self._cwd,
                env=environ,
                pass_fds=passed,
                start_new_session=True,
            )
        except BaseException:
            os.close(lifeline)
            raise
        finally:
            os.close(source)
        return Process(number, popen, lifeline)

    async def _hear(self, process: Process, messages: trio.socket.SocketType) -> None:
        """Take in what ``process`` says, as if to systemd."""
        while True:
            for line in (await messages.recv(4096)).decode("utf-8", "replace").splitlines():
                name, _, value = line.partition("=")
                if name == "WATCHDOG":
                    process.heard = trio.current_time()
                elif name == "READY":
                    self._is_ready(process)
                elif name in ("RELOADING", "STOPPING"):
                    process.rests = True
                elif name == "EXTEND_TIMEOUT_USEC" and value.isdigit():
                    self._notifier.extend(int(value))

    def _is_ready(self, process: Process) -> None:
        process.heard = trio.current_time()
        process.rests = False
        if process.ready:
            return
        process.ready = True
        first_time = len(self._served) < self._count
        self._served.add(process.number)
        if first_time and len(self._served) == self._count:
            self._log.notice("all processes serve", processes=self._count)
            self._notifier.ready()
        self._tell()

    def _tell(self) -> None:
        serving = sum(process.ready for process in self._running.values())
        self._notifier.status(f"{serving} of {self._count} processes serve")

    async def _watch_health(self) -> None:
        """End processes that hang, and tell systemd that this one does not."""
        limit = self._notifier.watchdog
        if not limit:
            return
        while True:
            await trio.sleep(limit / 4)
            now = trio.current_time()
            for process in self._running.values():
                if process.ready and not process.rests and now - process.heard > limit:
                    self._log.warning("a process hangs and is ended", process=process.number)
                    # The first signal makes it say where it stood, the second one cannot be held.
                    process.popen.send_signal(signal.SIGKILL if process.hung else signal.SIGABRT)
                    process.hung += 1
                    process.heard = now
            self._notifier.feed()


def command_line() -> list[str]:
    """How this process was called: options of the interpreter are kept, too."""
    return [sys.executable, *sys.orig_argv[1:]]
