"""The supervisor: starts the workers of a server with several processes and restarts those that
fail.

It serves no clients. Each worker is a node of its own, started with the same command line; the
workers find each other (``cluster``). The supervisor starts them, listens to them and restarts
them; it passes signals on, and tells systemd the state of all of them. A process that ends cleanly,
by SHUTDOWN or a signal of its own, ends all of them. If the supervisor is killed, or fails, the
workers see the end of their standard input, and stop.

Workers report their state as a service does to systemd, to a socket with an abstract name: there is
no file that could be removed or left over.

There is one task per process, one for the signals and one for the watchdogs. ``Fleet`` decides
which processes are started, and when.
"""

import math
import os
import secrets
import signal
import socket
import struct
import subprocess
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import trio

from disque_trio.node.worker import SERVER_VARIABLE, VARIABLE, announce
from disque_trio.process.fleet import Fleet, Member
from disque_trio.process.logs import Log, Logging
from disque_trio.process.process import make_directory, remove_pidfile, write_pidfile
from disque_trio.process.systemd import Notifier, pass_sockets

_LAST_WAIT = 30.0  # s that the processes have to stop when the supervisor fails
_CREDENTIALS = struct.Struct("3i")  # process, user and group that sent a message
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)


class Sockets(NamedTuple):
    """Listening sockets for workers.

    Attributes:
        first: for the first one alone, as systemd numbers them.
        shared: for all; some of them may be among these.
    """

    first: Sequence[socket.socket] = ()
    shared: Sequence[socket.socket] = ()


class Process:
    """A worker process as the supervisor sees it.

    Attributes:
        member: what is decided about it. number: its place, from 0.
        messages: the socket to which it reports.
        ready: it has reported ready.
        rests: it reported that it is stopping, restarting or reading its settings, which may take a
            while.
        stops: it reported that it is stopping.
        told: a signal has told it to stop.
        hangup: it gets SIGHUP as soon as it serves.
        hung: how often the watchdog has tried to end it.
        heard: when it last reported to be well, or became ready (trio's time).
        ended: set when it is gone.
    """

    def __init__(
        self,
        member: Member,
        popen: "subprocess.Popen[bytes]",
        lifeline: int,
        messages: socket.socket,
    ) -> None:
        self.member = member
        self.number = member.place
        self.popen = popen
        self.messages = messages
        self._lifeline = lifeline  # our end of its standard input, held open
        self.ready = False
        self.rests = False
        self.stops = False
        self.told = False
        self.hangup = False
        self.hung = 0
        self.heard = 0.0
        self.ended = trio.Event()

    def let_go(self) -> None:
        """Close its standard input, which tells it to end."""
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1


class Supervisor:
    """Starts, watches and stops the workers.

    Args:
        command: starts one, in the directory ``cwd``.
        count: how many to start.
        directory: of the first one; those of the others are in it.
        once: put jobs back into their queues at the first start.
        sockets: those on which they listen.
        pidfile: contains the id of this process while they serve; empty: there is none.

    Attributes:
        problem: why a worker could not start.
    """

    def __init__(
        self,
        command: Sequence[str],
        cwd: Path,
        count: int,
        directory: Path,
        once: bool,
        sockets: Sockets,
        notifier: Notifier,
        logging: Logging,
        pidfile: str = "",
    ) -> None:
        self._command = list(command)
        self._cwd = cwd
        self._count = count
        self._directory = directory
        self._once = once
        self._sockets = sockets
        self._server = secrets.token_hex(8)
        self._notifier = notifier
        self._logging = logging
        self._log: Log = logging.log
        self._running: dict[int, Process] = {}  # by serial number
        self._fleet = Fleet(self, count, grace=math.inf, deaths=math.inf, watched=False)
        self._nursery: trio.Nursery
        self._changed = trio.Event()  # one has ended, or all have to
        self._stopping = False
        self._interrupted = False  # a signal has told this process to stop
        self._status = 0
        self.problem = ""
        self._problem: OSError | None = None  # why they could not start
        self._pidfile = Path(pidfile).absolute() if pidfile else None

    async def run(self) -> int:
        """Run the workers until all have ended; return the exit status.

        Raises:
            OSError: a directory or the pidfile cannot be written, or the program cannot be
                started. Everything that had been started has ended.
        """
        for number in range(1, self._count):
            make_directory(self._directory / str(number))
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                await nursery.start(self._watch_signals)
                nursery.start_soon(self._watch_health)
                self._fleet.begin(trio.current_time())
                while not self._fleet.over:
                    with trio.move_on_at(self._fleet.next_due()):
                        await self._changed.wait()
                    self._changed = trio.Event()
                    self._fleet.tick(trio.current_time())
                nursery.cancel_scope.cancel()
        finally:
            if self._pidfile:
                remove_pidfile(self._pidfile)
        self._log.notice("all processes have ended", status=self._status)
        if self._problem is not None:
            raise self._problem
        return self._status

    def _stop(self, reason: str, status: int = 0) -> None:
        """Make all workers stop cleanly."""
        if not self._stopping:
            self._log.notice("stopping all processes", reason=reason)
            self._notifier.stopping()
            self._stopping = True
            self._status = status
        self._fleet.stop(trio.current_time())
        self._changed.set()

    def _tell_to_stop(self, process: Process) -> None:
        process.told = True
        process.popen.send_signal(signal.SIGTERM)

    def _fail(self, problem: OSError) -> None:
        """Stop all workers and end with ``problem``."""
        self._problem = self._problem or problem
        self._stop(str(problem), 1)

    def _reload(self, process: Process) -> None:
        """Pass SIGHUP on to a worker as soon as it handles the signal, which would end it before
        that."""
        process.hangup = not process.ready or process.rests
        if not process.hangup:
            process.popen.send_signal(signal.SIGHUP)

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
                    self._logging.reopen()
                    self._notifier.reloading()
                    for process in self._running.values():
                        self._take_in(process)
                        self._reload(process)
                    self._notifier.reloaded()
                elif not self._interrupted:
                    self._interrupted = True
                    self._stop(signal.Signals(number).name)
                else:
                    # A second signal goes to the processes, too: it makes them end at once.
                    for process in self._running.values():
                        self._tell_to_stop(process)

    # ---- carrying out decisions -----------------------------------------------------------------

    def start(self, member: Member) -> None:
        """See ``FleetControl``."""
        try:
            with ExitStack() as stack:
                messages = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
                messages.setblocking(False)
                # Others can see the name, and send to it: so ask for the sender of each message.
                messages.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
                name = f"disque-{os.getpid()}-{member.place}-{secrets.token_hex(8)}"
                messages.bind("\0" + name)
                process = self._running[member.serial] = self._start(member, "@" + name, messages)
                stack.pop_all()
        except OSError as problem:
            # For example, the system has no room for another process. That may pass.
            if member.first:
                self._problem = self._problem or problem
            self._fleet.failed(member, str(problem))
            self._nursery.start_soon(self._not_started, member)
        else:
            self._nursery.start_soon(self._attend, process)

    async def _not_started(self, member: Member) -> None:
        await trio.lowlevel.checkpoint()
        self._has_ended(member, 1)

    def finish(self, member: Member, within: float | None) -> None:
        """See ``FleetControl``: a node ends by itself."""
        self.terminate(member)

    def terminate(self, member: Member) -> None:
        """See ``FleetControl``."""
        if process := self._running.get(member.serial):
            # Read its last messages first: a worker that is already stopping would take the signal
            # as the second one, and not wait for anything.
            self._take_in(process)
            if not (process.told or process.stops):
                self._tell_to_stop(process)

    hand_back = kill = terminate

    def restarting(self, member: Member, status: int, reason: str, pause: float) -> None:
        """See ``FleetControl``."""
        self._log.warning(
            "a process has ended and is restarted",
            process=member.place,
            status=None if member.failure else status,
            reason=member.failure,
            pause=pause,
        )

    def say(self, event: str, *, urgent: bool = False, **fields: Any) -> None:
        """See ``FleetControl``."""
        self._log.notice(event, **fields)

    # ---- one process ----------------------------------------------------------------------------

    async def _attend(self, process: Process) -> None:
        """Listen to a process until it ends."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._hear, process)
                # It may have ended before it was registered.
                if process.popen.poll() is None:
                    await process.ended.wait()
                nursery.cancel_scope.cancel()
            self._take_in(process)  # its last messages
        finally:
            self._give_up(process)
            process.messages.close()
            del self._running[process.member.serial]
        self._has_ended(process.member, process.popen.returncode)

    def _has_ended(self, member: Member, status: int) -> None:
        """Note the end of a process, which is the end of all if it was told to end, or never
        served: then the log has its reason, and trying again does not help."""
        if status == 0:
            self._stop(f"process {member.place} was stopped")
        elif self._stopping and not member.failure and status != -signal.SIGTERM:
            self._status = 1  # with SIGTERM, it had no handler yet
        self._fleet.ended(member, status, trio.current_time())
        if not self._fleet.stopping:
            self._tell()
        elif not self._stopping and member.failure:
            self._stop(member.failure, 1)
        elif not self._stopping:
            self._stop(f"process {member.place} cannot start", 1)
            self.problem = self.problem or f"process {member.place} cannot start: see the log"
            self._notifier.status(self.problem)
        self._changed.set()

    def _give_up(self, process: Process) -> None:
        """Give up ``process``. If it still runs, this process is failing: all workers have
        to stop cleanly, for which they need no signal."""
        if process.popen.poll() is None:
            for other in self._running.values():
                other.let_go()
            try:
                process.popen.wait(_LAST_WAIT)
            except subprocess.TimeoutExpired:
                self._log.warning("a process does not stop", process=process.number)
        process.let_go()

    def _start(self, member: Member, address: str, messages: socket.socket) -> Process:
        """Start a worker, which sends its messages to ``address``. Raises ``OSError``."""
        announced = announce(member.place, self._once and member.first)
        environ = {**os.environ, VARIABLE: announced, "NOTIFY_SOCKET": address}
        if self._notifier.watchdog:
            environ["WATCHDOG_USEC"] = str(int(self._notifier.watchdog * 1e6))
        environ[SERVER_VARIABLE] = self._server
        passed = [] if member.place else self._sockets.first
        if passed:
            environ["LISTEN_FDS"] = str(len(passed))
        shared = [sock for sock in self._sockets.shared if sock not in passed]
        environ |= pass_sockets(shared)
        # Not the child of a thread: its end must not depend on that of a thread. And not in this
        # process's group, so that Ctrl-C reaches it once, through this process.
        source, lifeline = os.pipe()
        try:
            popen = subprocess.Popen(
                self._command,
                stdin=source,
                cwd=self._cwd,
                env=environ,
                pass_fds=[sock.fileno() for sock in (*passed, *shared)],
                start_new_session=True,
            )
        except BaseException:
            os.close(lifeline)
            raise
        finally:
            os.close(source)
        return Process(member, popen, lifeline, messages)

    async def _hear(self, process: Process) -> None:
        """Handle the messages of ``process`` as they arrive."""
        while True:
            await trio.lowlevel.wait_readable(process.messages)
            self._take_in(process)

    def _take_in(self, process: Process) -> None:
        """Handle the pending messages of ``process``, in the protocol of systemd."""
        while True:
            try:
                text, extras, _, _ = process.messages.recvmsg(
                    4096, socket.CMSG_SPACE(_CREDENTIALS.size)
                )
            except OSError:  # there are no more
                return
            if not any(_sender(extra) == process.popen.pid for extra in extras):
                continue
            for line in text.decode("utf-8", "replace").splitlines():
                name, _, value = line.partition("=")
                if name == "WATCHDOG":
                    process.heard = trio.current_time()
                elif name == "READY":
                    self._is_ready(process)
                elif name in ("RELOADING", "STOPPING"):
                    process.rests = True
                    process.stops = process.stops or name == "STOPPING"
                elif name == "STATUS" and value.startswith("cannot start"):
                    self.problem = self.problem or f"process {process.number} {value}"
                elif name == "EXTEND_TIMEOUT_USEC" and value.isdigit():
                    self._notifier.extend(int(value))

    def _is_ready(self, process: Process) -> None:
        """Note that ``process`` serves, and tell systemd when all of them do for the first time."""
        process.heard = trio.current_time()
        process.rests = process.stops
        was_ready, process.ready = process.ready, True
        if process.hangup:
            self._reload(process)
        if was_ready:
            return
        was_complete = self._fleet.complete
        self._fleet.ready(process.member, process.heard)
        if self._fleet.complete and not was_complete:
            # Now that all are there, no other server can have the ports.
            try:
                if self._pidfile:
                    write_pidfile(self._pidfile)
            except OSError as problem:
                self._fail(problem)
                return
            self._notifier.ready()
        self._tell()

    def _tell(self) -> None:
        """Tell systemd how many workers serve."""
        serving = sum(process.ready for process in self._running.values())
        self._notifier.status(f"{serving} of {self._count} processes serve")

    async def _watch_health(self) -> None:
        """End workers that hang, and tell systemd that the supervisor does not."""
        limit = self._notifier.watchdog
        if not limit:
            return
        while True:
            await trio.sleep(limit / 4)
            now = trio.current_time()
            for process in self._running.values():
                if process.ready and not process.rests and now - process.heard > limit:
                    self._log.warning("a process hangs and is being ended", process=process.number)
                    # SIGABRT makes it log where it was; SIGKILL cannot be held up.
                    process.popen.send_signal(signal.SIGKILL if process.hung else signal.SIGABRT)
                    process.hung += 1
                    process.heard = now
            self._notifier.feed()


def _sender(extra: tuple[int, int, bytes]) -> int:
    """The id of the process that sent a message, from its ancillary data; 0: it does not tell."""
    level, kind, data = extra
    if (level, kind) != (socket.SOL_SOCKET, socket.SCM_CREDENTIALS):
        return 0
    return int(_CREDENTIALS.unpack(data)[0])
