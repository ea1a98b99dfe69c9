"""The parent: starts worker processes, listens to them, and carries out the fleet's decisions.

It does not import code of the app, so that processes started later load the code as it is then. If
the parent is killed, the worker processes notice that their link is closed, and stop.
"""

import os
import random
import signal
import socket
import subprocess
import time
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any

import trio

from disque_trio.extras import how_to_install
from disque_trio.job_past import death
from disque_trio.metrics.web import Page as WebPage
from disque_trio.metrics.web import Web, text_page
from disque_trio.process import health
from disque_trio.process.fleet import Fleet, Member, State, how_ended
from disque_trio.process.logs import Log
from disque_trio.process.systemd import Notifier
from disque_trio.worker.deaths import returns, why_of
from disque_trio.worker.display import Banner, Display
from disque_trio.worker.figures import Figures
from disque_trio.worker.keeper import Keeper, login_of
from disque_trio.worker.lease import Lease
from disque_trio.worker.ledger import RUNNING, LedgerEntry
from disque_trio.worker.link import MappedPage, Message, SocketEnd, start_program
from disque_trio.worker.options import Options
from disque_trio.worker.reaping import memory_limit, reap
from disque_trio.worker.scale import Load, Scale
from disque_trio.worker.sources import Sources
from disque_trio.worker.tally import Tally
from disque_trio.worker.view import View, WorkerView

_TICK = 0.25  # s
_LAST_WORDS = 1.0  # s to read what a process sent before it ended
_MOST_NAMED = 100  # ids of jobs in one line of the log
_SHARE = 0.9  # of the memory that there is, for all processes


class Process:
    """A worker process, as the parent sees it.

    Attributes:
        in_hand, busy, memory, connected, lengths, oldest, cpu: as it last reported.
        most_memory: the most that it used; None: it has not ended, or that is not known.
        gone: set when it has ended.
        lease: keeps its jobs while it does not answer.
    """

    def __init__(
        self, member: Member, popen: "subprocess.Popen[bytes]", link: SocketEnd, page: MappedPage
    ) -> None:
        self.member = member
        self.popen = popen
        self.link = link
        self.page = page
        self.in_hand = 0
        self.busy = 0
        self.memory = 0
        self.connected = False
        self.lengths: dict[str, int] = {}
        self.oldest = 0.0
        self.cpu = [0, 0]
        self.most_memory: int | None = None
        self.gone = trio.Event()
        self.lease = Lease()

    def look(self) -> None:
        """Check whether it has ended, and read the shared page."""
        if self.popen.returncode is None:
            self.most_memory = reap(self.popen)
        if self.popen.returncode is not None:
            self.gone.set()
        elif not self.gone.is_set():
            self.member.deadline = self.page.deadline


def start_process(member: Member) -> Process:
    """Start the process of ``member``. Raises OSError."""
    page = MappedPage.make()
    ours, theirs = socket.socketpair()
    try:
        popen = start_program("disque_trio.worker.child", theirs.fileno(), page.descriptor)
    except OSError:
        ours.close()
        page.close()
        raise
    finally:
        theirs.close()
    return Process(member, popen, SocketEnd(ours), page)


class Parent:
    """Supervises the worker processes.

    Args:
        options: the command line.
        notifier: tells systemd about the state.
    """

    def __init__(self, options: Options, notifier: Notifier, log: Log) -> None:
        self._options = options
        self._notifier = notifier
        self._log = log
        self._fleet = Fleet(
            self,
            options.processes,
            grace=options.grace,
            deaths=options.restarts,
            stuck_after=options.stuck_after,
        )
        self._scale: Scale | None = None
        if options.scales:
            self._scale = Scale(
                options.processes,
                options.most_processes,
                concurrency=options.concurrency,
                target=options.scale_age,
                idle=options.scale_idle,
                bound=options.scale_memory or _SHARE * memory_limit(),
            )
        self._tally = Tally()
        self._processes: dict[int, Process] = {}
        self._sources = Sources()
        self._nursery: trio.Nursery
        self._login: dict[str, Any] | None = None  # of the processes, at the nodes
        self._returning = 0  # processes whose jobs are being given back
        self._display = Display(log, quiet=options.quiet)
        self._signals = 0
        self._handing_back = False
        self._told_ready = False
        self._status_file = Path(options.status_file) if options.status_file else None
        self._states: list[tuple[int, State]] = []  # as written to the status file

    async def run(self) -> str:
        """Run until all processes have ended. Returns a line that says what went wrong; empty if
        nothing did."""
        if wrong := self._status_problem():
            return wrong
        try:
            pages = self._pages() if self._options.metrics else {}
            listeners = await self._listeners()
        except OSError as problem:
            return f"--metrics: {problem.strerror or problem}"
        except ModuleNotFoundError as missing:
            if (missing.name or "").partition(".")[0] != "prometheus_client":
                raise
            return f"--metrics needs prometheus-client: {how_to_install('metrics')}"
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                await nursery.start(self._watch_signals)
                if listeners:
                    nursery.start_soon(Web(pages).serve, listeners)
                if self._options.reload:
                    nursery.start_soon(self._watch_sources)
                self._fleet.begin(time.monotonic())
                while not self._fleet.over or self._returning:
                    await trio.sleep(_TICK)
                    self._tick()
                nursery.cancel_scope.cancel()
        finally:
            self._display.end()
            self._remove_status()
        return self._fleet.problem

    async def _listeners(self) -> list[trio.SocketListener]:
        if self._options.metrics is None:
            return []
        host, port = self._options.metrics
        return await trio.open_tcp_listeners(port, host=host)

    def _tick(self) -> None:
        now = time.monotonic()
        for process in self._processes.values():
            process.look()
            if process.lease.is_due(process.member.silent(now), now):
                self._nursery.start_soon(self._keep, process)
        self._fleet.tick(now)
        view = self._view()
        self._tell(view)
        states = [(process.serial, process.state) for process in view.processes]
        self._rescale(view, now)
        if self._display.update(view, time.monotonic()) or states != self._states:
            self._states = states
            self._write_status(view)
        if self._notifier.watchdog:
            self._notifier.feed()

    def _tell(self, view: View) -> None:
        """Tell systemd."""
        if self._fleet.complete and not self._told_ready:
            self._told_ready = True
            self._notifier.ready()
        self._notifier.status(view.health()[1])

    # ---- carrying out decisions -----------------------------------------------------------------

    def start(self, member: Member) -> None:
        """See ``FleetControl``."""
        try:
            process = self._processes[member.serial] = start_process(member)
        except OSError as problem:
            self._fleet.failed(member, f"a process cannot be started: {problem.strerror}")
            self._nursery.start_soon(self._not_started, member)
            return
        self._nursery.start_soon(self._attend, process)
        options = self._options.to_json()
        self._order(member, "start", options=options, place=member.place, first=member.first)

    async def _not_started(self, member: Member) -> None:
        await trio.lowlevel.checkpoint()
        self._fleet.ended(member, 1, time.monotonic())

    def finish(self, member: Member, within: float | None) -> None:
        """See ``FleetControl``."""
        self._order(member, "finish", within=within)

    def hand_back(self, member: Member) -> None:
        """See ``FleetControl``."""
        self._order(member, "hand back")

    def terminate(self, member: Member) -> None:
        """See ``FleetControl``."""
        self._signal(member, signal.SIGTERM)

    def kill(self, member: Member) -> None:
        """See ``FleetControl``."""
        self._signal(member, signal.SIGKILL)

    def restarting(self, member: Member, status: int, reason: str, pause: float) -> None:
        """See ``FleetControl``."""
        fields = {"process": member.serial, "reason": reason, "pause": pause}
        self.say("a process died and is started again", urgent=True, **fields)

    def say(self, event: str, *, urgent: bool = False, **fields: Any) -> None:
        """See ``FleetControl``."""
        (self._log.warning if urgent else self._log.notice)(event, **fields)

    def _order(self, member: Member, kind: str, **fields: Any) -> None:
        process = self._processes.get(member.serial)
        if process is not None:
            self._nursery.start_soon(partial(process.link.send, kind, **fields))

    def _signal(self, member: Member, number: signal.Signals) -> None:
        process = self._processes.get(member.serial)
        if process is not None:
            process.popen.send_signal(number)

    # ---- one process ----------------------------------------------------------------------------

    async def _attend(self, process: Process) -> None:
        """Listen to a process until it ends."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._listen, process)
            await process.gone.wait()
            nursery.cancel_scope.deadline = trio.current_time() + _LAST_WORDS
        await process.link.aclose()
        member, status, now = process.member, process.popen.returncode, time.monotonic()
        entries = process.page.ledger.entries()
        process.page.close()
        del self._processes[member.serial]
        member.busy = any(entry.state == RUNNING for entry in entries)
        if entries:
            self._nursery.start_soon(self._give_back, process, entries, now)
            self._returning += 1
        self._fleet.ended(member, status, now)

    async def _give_back(self, process: Process, entries: list[LedgerEntry], now: float) -> None:
        """Give back the jobs of a process that has ended."""
        member, status = process.member, process.popen.returncode
        why, how = (
            why_of(member, status),
            death(how_ended(status), process.most_memory or process.memory or None),
        )
        try:
            ids = [entry.id for entry in entries]
            fields = {"process": member.serial, "count": len(ids), "jobs": ids[:_MOST_NAMED]}
            self.say("jobs of a process come back", urgent=why != "stopped", reason=how, **fields)
            left = ids
            if (keeper := self._keeper()) is not None:
                back = returns(entries, why, how, now, random)
                left = await keeper.give_back(back, once=self._fleet.stopping)
            if left:
                told = {"process": member.serial, "count": len(left), "jobs": left[:_MOST_NAMED]}
                self.say("jobs of a process come back after their retry time", urgent=True, **told)
        finally:
            self._returning -= 1

    async def _keep(self, process: Process) -> None:
        """Keep the jobs of a process that does not answer from being delivered again."""
        if process.gone.is_set():
            return
        now = time.monotonic()
        entries = process.lease.wanted(process.page.ledger.entries(), now)
        with process.lease.renewing(now) as kept:
            if entries and (keeper := self._keeper()) is not None:
                kept.update(await keeper.keep(entries))

    def _keeper(self) -> Keeper | None:
        """Return what speaks to the nodes; None if no process has said how to."""
        if self._login is None:
            return None
        try:
            return Keeper(self._nursery, login_of(self._login))
        except ValueError as problem:  # with a certificate
            self.say("the nodes cannot be told of a process", urgent=True, error=str(problem))
            return None

    async def _listen(self, process: Process) -> None:
        while (message := await process.link.receive()) is not None:
            self._take_in(process, message)

    def _take_in(self, process: Process, message: Message) -> None:
        member, now = process.member, time.monotonic()
        self._sources.add(message.get("files", ()))
        match message["kind"]:
            case "app":
                self._display.start(self._banner(message))
            case "ready":
                self._login = message["login"]
                self._fleet.ready(member, now)
            case "beat":
                self._tally.merge(message["tally"])
                process.in_hand = message["in_hand"]
                process.busy = message["busy"]
                process.memory = message["memory"] or 0
                process.connected = message["connected"]
                process.lengths = message["lengths"]
                process.oldest = message["oldest"]
                process.cpu = message["cpu"]
                self._fleet.heard(member, now)
            case "asked":
                self._asked(now, hand_back=message["hand_back"])
            case "retire":
                self._fleet.wants_to_end(member, message["why"], message["within"], now)
            case "failed":
                self._fleet.failed(member, message["text"], message["final"])

    def _banner(self, message: Message) -> Banner:
        said = {name: message[name] for name in ("nodes", "queues", "not_taken", "tasks")}
        options = self._options
        bounds = [options.processes, options.most_processes]
        return Banner(
            app=options.app,
            processes="..".join(map(str, bounds if options.scales else bounds[:1])),
            concurrency=options.concurrency,
            **said,
        )

    # ---- signals and changes --------------------------------------------------------------------

    async def _watch_signals(
        self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        caught = [signal.SIGTERM, signal.SIGINT, signal.SIGCHLD]
        if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # nohup ignores it
            caught.append(signal.SIGHUP)
        with trio.open_signal_receiver(*caught) as signals:
            task_status.started()
            async for number in signals:
                now = time.monotonic()
                if number == signal.SIGCHLD:
                    for process in self._processes.values():
                        process.look()
                elif number == signal.SIGHUP and not self._display.hung_up:
                    self._notifier.reloading()
                    self._fleet.reload(now)
                    self._notifier.reloaded()
                elif not self._signals:
                    self._signals += 1
                    self._stop(now)
                else:
                    self._fleet.stop_now(now)

    def _asked(self, now: float, *, hand_back: bool) -> None:
        """Do what somebody has asked a node for: end the worker."""
        if not self._fleet.stopping:
            self._log.notice("asked to stop, by way of a node", hand_back=hand_back)
            self._stop(now)
        if hand_back and not self._handing_back:
            self._handing_back = True
            self._fleet.stop_now(now)

    def _stop(self, now: float) -> None:
        """Take no more jobs."""
        self._log.notice("taking no more jobs", grace=self._options.grace)
        self._notifier.stopping()
        self._notifier.extend(int((self._options.grace + 10) * 1e6))
        self._fleet.stop(now)

    async def _watch_sources(self) -> None:
        while True:
            await trio.sleep(1.0)
            changed = self._sources.changed()
            if changed:
                self._log.notice("source files changed", files=changed)
                self._fleet.reload(time.monotonic())

    def _pages(self) -> dict[str, WebPage]:
        def healthz() -> tuple[HTTPStatus, str]:
            well, text = self._view().health()
            status = HTTPStatus.OK if well else HTTPStatus.SERVICE_UNAVAILABLE
            return status, text + "\n"

        from disque_trio.metrics.scrapes import Scrapes  # needs an extra

        scrapes = Scrapes("disque_worker", [Figures(self._view)])
        return {"/metrics": scrapes.page, "/healthz": text_page(healthz)}

    def _view(self) -> View:
        now = time.monotonic()
        processes = [
            WorkerView(
                process.member.serial,
                process.popen.pid,
                process.member.state,
                process.member.stuck(now),
                process.in_hand,
                process.memory,
                process.connected,
                *process.cpu,
            )
            for process in self._processes.values()
        ]
        lengths = [process.lengths for process in self._processes.values() if process.lengths]
        options, scale = self._options, self._scale
        return View(
            options.processes if scale is None else scale.wanted,
            options.concurrency,
            processes,
            self._tally,
            self._fleet.restarts,
            lengths[-1] if lengths else {},
            None if scale is None else (options.processes, options.most_processes),
            None if scale is None else self._oldest(),
        )

    def _oldest(self) -> float:
        """Return how long ago (s) the oldest job in the worker's queues was added."""
        return max((process.oldest for process in self._processes.values()), default=0.0)

    # ---- how many processes ---------------------------------------------------------------------

    def _rescale(self, view: View, now: float) -> None:
        """Change the number of processes if it is time."""
        scale = self._scale
        if scale is None or not self._fleet.complete or self._fleet.stopping:
            return
        load = Load(
            oldest=view.oldest or 0.0,
            slots=view.slots,
            busy=sum(
                one.busy for one in self._processes.values() if one.member.state is State.SERVING
            ),
            starting=view.count(State.STARTING) > 0,
            ending=view.count(State.RETIRING) > 0,
            memory=view.memory,
            largest=max((one.memory + one.cpu_memory for one in view.processes), default=0),
        )
        if why := scale.decide(load, now):
            self._fleet.resize(scale.wanted, now)
            self.say(
                "the number of processes changes",
                processes=scale.wanted,
                reason=why,
                oldest=round(load.oldest, 1),
                busy=load.busy,
                slots=load.slots,
                memory=load.memory,
            )

    # ---- the status file ------------------------------------------------------------------------

    def _status_problem(self) -> str:
        """Why the status file cannot be written; empty if it can."""
        if self._status_file is not None:
            try:
                health.check_writable(self._status_file)
            except OSError as problem:
                return f"--status-file {self._status_file}: {problem.strerror or problem}"
        return ""

    def _write_status(self, view: View) -> None:
        if self._status_file is not None:
            try:
                health.write(self._status_file, view.status(os.getpid(), time.time()))
            except OSError as problem:
                self._log.warning("the status file cannot be written", error=str(problem))

    def _remove_status(self) -> None:
        if self._status_file is not None:
            self._status_file.unlink(missing_ok=True)
