"""The node's side of the event log: collects the events of its turns, runs the process that writes
them, and restarts that process when it ends.

Settings apply from the next tick on; a process that was started with other settings ends cleanly
first.
"""

import fcntl
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol

import trio

import disque_trio
from disque_trio.eventlog.feed import Feed
from disque_trio.eventlog.schema import (
    RESTART,
    SEGMENT,
    SHUTDOWN,
    STARTED,
    STOPPED,
    SWITCHED_OFF,
    Event,
    StopReason,
)

TICK = 0.1  # s
STOP_SECONDS = 2.0  # for a process to write and close what it has
FIRST_BACKOFF = 0.1  # s before the next process
MAX_BACKOFF = 30.0
LONG_LIFE = 10.0  # s; after a process that lived longer, the backoff starts over

_PACKAGES = Path(disque_trio.__file__).parent.parent
_PIPE_SIZE = 1 << 20
_READ_SIZE = 1 << 16
_LOOK = 0.01  # s between checks while a process is ending


class Source(Protocol):
    """The node, from which events come.

    Attributes:
        eventing: whether it records events.
        events: what has happened since they were last taken.
        now: its time in ms.
    """

    eventing: bool
    events: list[Event]

    @property
    def now(self) -> int: ...


class Log(Protocol):
    """The log for errors."""

    def notice(self, event: str, **fields: object) -> None: ...

    def warning(self, event: str, **fields: object) -> None: ...


WhenStirred = Callable[[Callable[[], None]], None]
"""Calls the given function once, when the node has done something that may be an event."""


class Settings(NamedTuple):
    """The parameters of the event log, under their names in the configuration."""

    directory: Path
    segment_size: int
    segment_seconds: int
    compress: bool
    keep_hours: int
    max_size: int


class EventLog:
    """The event log of one node.

    Args:
        source: makes the events.
        id: the id of the node, 40 hex characters.
        feed: for tests.
        run: the id of the node's run, hex.
        nodes: returns the ids of all nodes of the cluster; call ``cluster_changed`` when there are
            others.

    Attributes:
        problem: why it cannot be written; empty: it can.
    """

    def __init__(
        self,
        source: Source,
        id: str,
        log: Log,
        feed: Feed | None = None,
        run: str = "",
        nodes: Callable[[], Sequence[str]] | None = None,
    ) -> None:
        self._source = source
        self._id = id
        self._run = run
        self._nodes = nodes or (lambda: [id])
        self._told: Sequence[str] = []  # the nodes that the log has named last
        self._up = 0  # since when the node runs, and writes its log, ms; 0: not yet
        self._since = 0
        self._log = log
        self._feed = feed or Feed()
        self._wanted: Settings | None = None
        self._last: Settings | None = None  # the last settings that were wanted
        self._running: Settings | None = None  # the settings that the process was started with
        self._process: trio.Process | None = None
        self._input = -1  # the input of the process
        self._is_new = False  # it does not know the facts about the node yet
        self._answers = -1
        self._answer = b""  # an incomplete answer
        self._segment = ""  # the file being written, and its size
        self._size = 0
        self.problem = ""
        self._changed = trio.Event()
        self._stirred = trio.Event()  # the node has done something
        self._stirred.set()
        self._beginning = False  # events are recorded, but the log does not say so yet

    # ---- turns ------------------------------------------------------------------------------

    def turn(self) -> None:
        """Pass on what the node did. Call this when there is a batch; never waits."""
        source = self._source
        events = source.events
        if events:
            source.events = []
        if self._beginning and source.now:
            # The node's clock stands still until its first turn.
            first = events[0] if events else b""
            began = first[0] if isinstance(first, tuple) else source.now
            self._since = began if isinstance(began, int) else source.now
            self._up = self._up or self._since
            self._feed.mark(STARTED, self._since)
            self._beginning = False
        self._feed.add(events, source.now)
        if self._input >= 0 and self._since:
            if self._is_new:
                self._is_new = False
                self._feed.greet(self._facts())
            self._feed.push(self._input)

    def _facts(self) -> dict[str, object]:
        """What the first lines of files say, see ``NODE_FACTS``."""
        self._told = self._nodes()
        return {"run": self._run, "up": self._up, "since": self._since, "nodes": [*self._told]}

    def runs(self, now: int) -> None:
        """The node runs since ``now`` (ms). If it writes its log from the beginning, it runs since
        that says so."""
        if not self._source.eventing:
            self._up = self._up or now

    # ---- settings ---------------------------------------------------------------------------

    def apply(self, settings: Settings | None) -> None:
        """Write the log according to ``settings`` from now on; None: write none."""
        self._wanted = settings
        if settings is not None:
            self._beginning = self._beginning or not self._source.eventing
            self._last = settings
        elif self._source.eventing:
            self._end(SWITCHED_OFF)
        self._source.eventing = settings is not None
        self._changed.set()

    def _end(self, why: StopReason) -> None:
        """Stop recording events, and note that the log is complete up to here."""
        self.turn()
        if not self._beginning:
            self._feed.mark(STOPPED, self._source.now, why)
        self._beginning = False

    def cluster_changed(self) -> None:
        """Note which nodes the cluster has now, if these are others than before."""
        nodes = self._nodes()
        if nodes == self._told:
            return
        self._told = nodes
        # Otherwise, the next process learns them at its beginning.
        if self._source.eventing and self._input >= 0 and not self._is_new:
            self.turn()
            self._feed.mark(SEGMENT, self._source.now, " ".join(nodes))

    @property
    def dropped(self) -> int:
        """The number of events that are missing from the log, since too many waited for it."""
        return self._feed.dropped

    def info(self) -> dict[str, str | int | float]:
        """Return the fields for INFO persistence."""
        self.turn()
        process = self._process
        alive = process is not None and process.returncode is None
        fields: dict[str, str | int | float] = {
            "event_log_enabled": int(self._source.eventing),
            "event_log_process_id": process.pid if process is not None and alive else 0,
            "event_log_events_written": self._feed.written,
            "event_log_events_dropped": self._feed.dropped,
            "event_log_last_write_status": "err" if self.problem else "ok",
        }
        if self._source.eventing:
            fields |= {
                "event_log_buffer_length": self._feed.waiting,
                "event_log_current_segment": self._segment,
                "event_log_current_size": self._size,
            }
        return fields

    # ---- the process ------------------------------------------------------------------------

    async def run(self, when_stirred: WhenStirred) -> None:
        """Keep the process running until cancelled. The process outlives that; see ``close``."""
        backoff = FIRST_BACKOFF
        while True:
            self._changed = trio.Event()
            self.turn()
            settings = self._wanted
            if settings is None and self._feed.waiting:
                settings = self._last  # switched off quickly: events from meanwhile still count
            if settings is None:
                await self._changed.wait()
                continue
            started = trio.current_time()
            try:
                await self._start(settings)
            except OSError as failure:
                self.problem = str(failure)
            else:
                await self._tend(when_stirred)
            if self._wanted == self._running:
                if trio.current_time() - started > LONG_LIFE:
                    backoff = FIRST_BACKOFF
                await self._wait(backoff)
                backoff = min(2 * backoff, MAX_BACKOFF)
            else:
                await self._finish(STOP_SECONDS, True)
                if self._wanted is None:
                    self._give_up()
                backoff = FIRST_BACKOFF

    async def _start(self, settings: Settings) -> None:
        """Start a process. Raises OSError."""
        self._running = settings
        command = [sys.executable, "-m", "disque_trio.eventlog", self._id, str(settings.directory)]
        command += ["--segment-size", str(settings.segment_size)]
        command += ["--segment-seconds", str(settings.segment_seconds)]
        command += ["--keep-hours", str(settings.keep_hours)]
        command += ["--max-size", str(settings.max_size)]
        if settings.compress:
            command.append("--compress")
        if self._segment:
            command += ["--resume", self._segment, "--known", str(self._size)]
        pipes = [*os.pipe(), *os.pipe()]
        try:
            self._process = await trio.lowlevel.open_process(
                command,
                stdin=pipes[0],
                stdout=pipes[3],
                cwd=_PACKAGES,
                start_new_session=True,  # Ctrl-C is for the node
            )
        except BaseException:
            os.close(pipes[1])
            os.close(pipes[2])
            raise
        finally:
            os.close(pipes[0])
            os.close(pipes[3])
        self._is_new = True
        self._input, self._answers = pipes[1:3]
        os.set_blocking(self._input, False)
        os.set_blocking(self._answers, False)
        try:
            fcntl.fcntl(self._input, fcntl.F_SETPIPE_SZ, _PIPE_SIZE)
        except OSError:
            pass  # other pipes of this user have used up the limit

    async def _tend(self, when_stirred: WhenStirred) -> None:
        """Feed the process until it dies, or should be replaced."""
        while self._wanted == self._running:
            self.turn()
            self._read_answers()
            if self._process is None or self._process.returncode is not None:
                self._bury()
                return
            await trio.sleep(TICK)
            self._changed = trio.Event()
            busy = self._source.events or self._beginning or self._feed.busy
            if not busy and self._wanted == self._running:
                await self._rest(self._process, when_stirred)

    async def _rest(self, process: trio.Process, when_stirred: WhenStirred) -> None:
        """Wait until the node does something, settings change, or the process answers or dies."""
        if self._stirred.is_set():
            self._stirred = trio.Event()
            when_stirred(self._stirred.set)
        async with trio.open_nursery() as nursery:

            async def first(wait: Callable[[], Awaitable[object]]) -> None:
                await wait()
                nursery.cancel_scope.cancel()

            nursery.start_soon(first, self._stirred.wait)
            nursery.start_soon(first, self._changed.wait)
            nursery.start_soon(first, process.wait)
            nursery.start_soon(first, partial(trio.lowlevel.wait_readable, self._answers))

    async def _wait(self, seconds: float) -> None:
        """Go on without a process, but do not let events of a busy node pile up meanwhile."""
        end = trio.current_time() + seconds
        while trio.current_time() < end and self._wanted == self._running:
            self.turn()
            await trio.sleep(min(TICK, seconds))

    def _bury(self) -> None:
        """Clean up after a process that has ended; the next one gets what it left."""
        process = self._process
        if process is None:
            return
        self._read_answers()
        self._process = None
        self._close_input()
        os.close(self._answers)
        self._answers = -1
        self._answer = b""
        self._feed.rewind()
        if process.returncode:
            self._log.warning(
                "the process that writes the event log has ended", status=process.returncode
            )

    def _close_input(self) -> None:
        if self._input >= 0:
            os.close(self._input)
            self._input = -1

    def _read_answers(self) -> None:
        try:
            while data := os.read(self._answers, _READ_SIZE):
                *lines, self._answer = (self._answer + data).split(b"\n")
                for line in lines:
                    self._take_answer(line.decode("utf-8", "replace"))
        except BlockingIOError:
            pass

    def _take_answer(self, line: str) -> None:
        verdict, _, rest = line.partition(" ")
        if verdict == "err":
            self.problem = rest
            return
        batches, events, size, self._segment = rest.split(" ", 3)
        self._size = int(size)
        if self._feed.confirm(int(batches), int(events)):
            self.problem = ""

    # ---- the end ----------------------------------------------------------------------------

    async def _finish(self, seconds: float, kill: bool) -> None:
        """Let the process write everything, close its files and end.

        It has ``seconds``, plus half of that to take what does not fit into the pipe. If it needs
        longer, it is killed, or else left alone to end by itself when it has finished.
        """
        process = self._process
        if process is None:
            return
        self.turn()
        with trio.move_on_after(seconds / 2):
            while process.returncode is None and self._feed.unsent:
                self.turn()
                self._read_answers()
                await trio.sleep(_LOOK)
        self._close_input()
        with trio.move_on_after(seconds):
            while process.returncode is None:
                self._read_answers()
                await trio.sleep(_LOOK)
        if process.returncode is None and kill:
            process.kill()
            await process.wait()
        if process.returncode is not None:
            self._bury()
        if self._wanted is None:
            self._segment = ""
            self._size = 0

    async def close(self, seconds: float = STOP_SECONDS, restarts: bool = False) -> None:
        """Write everything to files after the node's last turn, within ``seconds`` or a bit more.
        Must not be called while ``run`` runs.

        Args:
            restarts: another process takes the place of this one.
        """
        if self._source.eventing:
            self._end(RESTART if restarts else SHUTDOWN)
        self.turn()
        await self._finish(seconds, False)
        if self._process is None and self._feed.waiting and self._last is not None:
            # The last process had died, or there was none yet.
            try:
                await self._start(self._last)
            except OSError as failure:
                self.problem = str(failure)
            await self._finish(seconds, False)
        self._source.eventing = False
        self._give_up()

    def _give_up(self) -> None:
        lost = self._feed.give_up()
        if lost:
            self._log.warning("the end of the event log may be missing", events=lost)

    def abandon(self) -> None:
        """Let go of the process, since the node ends abnormally: it notices that, and ends."""
        self._close_input()
        if self._answers >= 0:
            os.close(self._answers)
            self._answers = -1
