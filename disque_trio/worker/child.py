"""A worker process: ``python -m disque_trio.worker.child LINK PAGE``, started by the parent.

It imports the app, connects, and runs jobs in its slots. It ends when its parent tells it to, when
the parent is gone (which closes the link), or at a signal. Its tasks may finish within the grace.
"""

import os
import signal
import socket
import sys
import sysconfig
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from fnmatch import fnmatchcase

import trio

from disque_trio.client import AuthError, Client, ConnectionLost, DisqueError, tracing
from disque_trio.client.connecting import connect_to
from disque_trio.process.fleet import BEAT, MARGIN
from disque_trio.process.logs import Log, Logging
from disque_trio.respclient.background import background
from disque_trio.respclient.log import lines_go_to
from disque_trio.tasks import Disque
from disque_trio.tasks.messages import describe
from disque_trio.tasks.running import Outcome, Runner
from disque_trio.version import VERSION
from disque_trio.worker.apart import Apart
from disque_trio.worker.link import MappedPage, SocketEnd, inherited, line, read_line
from disque_trio.worker.options import Options
from disque_trio.worker.reaping import memory_of
from disque_trio.worker.round_robin import QueueWeight
from disque_trio.worker.slots import Slots, lanes_of, orders_of
from disque_trio.worker.tally import Tally, Waits
from disque_trio.worker.target import AppError, files, load

_PAUSE = 1.0  # s between two attempts to find a node
_LAST_WORDS = MARGIN / 2  # s to hand jobs back, and for what takes longer than that
_HAND_BACK = (
    _LAST_WORDS / 2
)  # s in which nodes may take jobs back; if none is reached, of the grace
_MOST_NAMED = 100  # ids of jobs in one line of the log
_FLUSH = MARGIN / 10  # s to send traces
_REPORTS = 3.0  # s between two reports to the node
_NO_REPORTS = 60.0  # s until a node that takes none is asked again
_NAMED = 20  # queues that a report names
_NAMES = 2_000  # and characters of their names, at most
_PATIENCE = 30.0  # s for which a command is repeated if the node is gone
_LIBRARIES = tuple(
    sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib", "purelib", "platlib")
)


class CannotStart(Exception):
    """The process cannot start. The text says why, in one line."""


class Refused(CannotStart):
    """Another process would not get any jobs either."""


class Child:
    """A worker process.

    Args:
        app: the app whose tasks to run.
        link: the link to the parent.
        page: the memory shared with the parent.
        options: the command line.
        place: the number of this process, from 0; process 0 reports the lengths of the queues.
        first: whether no process has served in this place yet. If so and there is no node, it
            reports that and ends.
    """

    def __init__(
        self,
        app: Disque,
        link: SocketEnd,
        page: MappedPage,
        options: Options,
        *,
        place: int,
        first: bool,
        log: Log,
    ) -> None:
        self._app = app
        self._cluster = app.cluster.named_after("disque-worker")
        self._link = link
        self._page = page
        self._options = options
        self._place = place
        self._first = first
        self._log = log
        self._tally = Tally()
        self._waits = Waits(self._tally)
        self._tasks = 0
        self._told_memory = False
        self._retiring = False
        self._ending = trio.Event()
        self._starting = trio.CancelScope()  # around waiting for a node, until jobs are taken
        self._serving = False
        self._settling = trio.CancelScope()  # around waiting for a node to take outcomes
        self._limit = trio.CancelScope()  # limits the time that tasks have at the end
        self._early = trio.CancelScope()  # the same if no node is reached
        self._runaway = False

    async def run(self) -> None:
        """Run jobs until the end. If something goes on that cannot be stopped, end the process
        instead of returning.

        Raises:
            CannotStart: there is no node, for example, or the user may not take jobs.
        """
        async with background() as nursery:
            await nursery.start(self._watch_signals)
            nursery.start_soon(self._listen)
            if self._place == 0:
                await self._introduce()
            with self._starting:
                await self._connect()
        if self._runaway:
            leave()  # at once, since the loop would wait for tasks that ignore their cancellation

    async def _introduce(self) -> None:
        """Tell the parent, which does not import the app, what to say of it."""
        app, chosen = self._app, self._options.queues
        weights = {queue.weight for queue in chosen}
        queues = [f"{one.name}:{one.weight}" if len(weights) > 1 else one.name for one in chosen]
        not_taken = [
            name
            for name in app.queues()
            if chosen and not any(fnmatchcase(name, queue.name) for queue in chosen)
        ]
        await self._link.send(
            "app",
            nodes=app.nodes,
            queues=queues or app.queues(),
            not_taken=not_taken,
            tasks=list(app.core.tasks),
        )

    async def _connect(self) -> None:
        app = self._app
        await self._wait_for_node()
        async with connect_to(self._cluster, _PATIENCE) as client:
            with app.using(client):
                try:
                    await app.setup()
                except DisqueError as error:
                    raise CannotStart(f"the node refuses the app's policies: {error}") from error
                await self._serve(client)

    async def _wait_for_node(self) -> None:
        """Wait until a node answers and accepts the password. Raises CannotStart."""
        app = self._app
        while True:
            try:
                async with connect_to(self._cluster, self._options.wait):
                    return
            except (DisqueError, ValueError) as error:
                if self._first:
                    raise CannotStart(no_node(app, error)) from error
                self._log.warning("waiting for a node", error=no_node(app, error))
            await trio.sleep(_PAUSE)

    async def _serve(self, client: Client) -> None:
        app, options = self._app, self._options
        queues = options.queues or tuple(QueueWeight(name, 1) for name in app.queues())
        if not queues:
            raise CannotStart("the app has no tasks: name queues with --queues")
        named = [queue.name for queue in queues if queue.name not in options.patterns]
        apart = Apart(options, app.core, self._log)
        runner = Runner(
            app,
            limiter=trio.CapacityLimiter(options.concurrency),
            log=self._log,
            apart=apart,
        )
        self._serving = True
        orders = orders_of(
            queues,
            options.concurrency,
            app.core.queues_apart(),
            options.cpu_processes,
            strict=options.strict,
        )
        slots = Slots(
            lanes_of(client, orders, by_pattern=bool(options.patterns)),
            runner,
            tally=self._tally,
            waits=self._waits,
            page=self._page,
            definition=lambda job: app.core.definition_of(job.headers),
            on_outcome=self._outcome,
            log=self._log,
        )
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._beat, client, slots, named, apart)
            nursery.start_soon(apart.tend)
            nursery.start_soon(self._report, client, slots, [queue.name for queue in queues])
            nursery.start_soon(self._end, client, slots, runner)
            login = asdict(self._app.cluster.login)
            await self._link.send("ready", files=files(but=_LIBRARIES), login=login)
            await slots.run()
            await self._retire_if_due(memory_of())
            if not self._ending.is_set():  # jobs are refused
                self._finish(self._options.grace)
            with self._settling:
                await runner.settled()
            nursery.cancel_scope.cancel()
        self._give_up(runner)
        with trio.move_on_after(_LAST_WORDS):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(apart.close)
                nursery.start_soon(runner.shutdown)
        await self._tell(slots, None)
        if slots.refusal is not None:
            raise Refused(f"the node gives this user no jobs: {slots.refusal}")

    # ---- the end ------------------------------------------------------------------------------

    async def _end(self, client: Client, slots: Slots, runner: Runner) -> None:
        """At the end, take no more jobs, and hand back those whose tasks take too long."""
        await self._ending.wait()
        await slots.stop()
        with self._early:
            await trio.sleep_forever()
        within = self._limit.deadline - trio.current_time()
        if within > 0 and client.address is None:
            self._give_up(runner)  # so that no slot waits for that
        else:
            with self._limit:
                await trio.sleep_forever()
            within = _HAND_BACK
        if slots.in_hand:
            self._log.notice("jobs are handed back", jobs=len(slots.in_hand))
        self._settling.cancel()
        with trio.move_on_after(within / 2):  # a node may hang
            await slots.quiet()
        slots.hand_back(within)
        await trio.sleep(_LAST_WORDS)
        # A task ignores its cancellation. Its job comes again, since the connection breaks.
        self._log.warning("tasks do not end", jobs=[job.id for job in slots.in_hand])
        leave()

    def _give_up(self, runner: Runner) -> None:
        """Settle no more jobs, and say which were left."""
        if left := runner.give_up():
            self._log.warning(
                "no node took the outcomes of tasks: their jobs come again",
                count=len(left),
                jobs=left[:_MOST_NAMED],
            )

    def _finish(self, within: float | None) -> None:
        """End when all tasks have ended, or in ``within`` seconds if that is not None."""
        if within is not None:
            last = trio.current_time() + within
            self._limit.deadline = min(self._limit.deadline, last)
            self._early.deadline = min(self._early.deadline, last - min(_HAND_BACK, within / 2))
        self._ending.set()
        if not self._serving:
            self._starting.cancel()

    async def _listen(self) -> None:
        """Carry out the parent's orders."""
        while (message := await self._link.receive()) is not None:
            if message["kind"] == "finish":
                self._finish(message["within"])
            elif message["kind"] == "hand back":
                self._finish(0)
        # The parent is gone, or the link broke for another reason.
        self._log.warning("the parent is gone: taking no more jobs", grace=self._options.grace)
        self._finish(self._options.grace)

    async def _watch_signals(
        self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            task_status.started()
            async for _ in signals:
                if self._ending.is_set():
                    self._finish(0)
                else:
                    await self._retire("signal", self._options.grace)
                    self._finish(self._options.grace)

    async def _retire_if_due(self, used: int) -> None:
        if self._runaway:
            await self._retire("runaway", self._options.grace)
        elif self._has_too_much(used):
            await self._retire("memory")
        elif self._ending.is_set():
            await self._retire("tasks")

    async def _report(self, client: Client, slots: Slots, queues: Sequence[str]) -> None:
        """Report to the node every few seconds, for those who look at its workers, and pass on to
        the parent what they ask of this one."""
        told_ending = False  # which it does at once
        while True:
            pause = _REPORTS
            fields = report(
                slots=self._options.concurrency,
                running=len(slots.in_hand),
                memory=memory_of(),
                ending=self._ending.is_set(),
                queues=queues,
            )
            try:
                order = await client.execute("WORKER", "REPORT", *fields)
            except ConnectionLost:
                pass  # the next report goes to another node
            except DisqueError:
                pause = _NO_REPORTS  # the node is older, or the user may not report
            else:
                if order in (b"STOP", b"HANDBACK"):
                    await self._link.send("asked", hand_back=order == b"HANDBACK")
            with trio.move_on_after(pause):
                await self._ending.wait()
                if told_ending:
                    await trio.sleep_forever()
                told_ending = True

    async def _retire(self, why: str, within: float | None = None) -> None:
        """Ask the parent for a replacement."""
        if not self._retiring:
            self._retiring = True
            await self._link.send("retire", why=why, within=within)

    # ---- reports ------------------------------------------------------------------------------

    def _outcome(self, outcome: Outcome) -> bool:
        self._tasks += 1
        self._runaway = self._runaway or outcome.kind == "runaway"
        full = self._options.max_tasks is not None and self._tasks >= self._options.max_tasks
        if full or self._runaway:
            # The next sign of life tells the parent; this makes it come at once.
            self._finish(self._options.grace if self._runaway else None)
        return not self._ending.is_set()

    async def _beat(self, client: Client, slots: Slots, queues: list[str], apart: Apart) -> None:
        """Report to the parent every second."""
        told = ""
        while True:
            used = memory_of()
            await self._retire_if_due(used)
            lengths: dict[str, int] = {}
            oldest = 0.0
            if self._place == 0:
                with trio.move_on_after(BEAT):
                    try:
                        if self._options.scales:
                            lengths, oldest = await _look_at(client, queues)
                        else:
                            lengths = {name: await client.qlen(name) for name in queues}
                    except DisqueError as error:
                        if str(error) != told:
                            told = str(error)
                            self._log.warning("the node does not answer", error=told)
            await self._tell(
                slots,
                used,
                lengths,
                connected=client.address is not None,
                oldest=oldest,
                cpu=[apart.count, apart.memory()],
            )
            with trio.move_on_after(BEAT):
                await self._ending.wait()
                await trio.sleep(BEAT if self._retiring else 0)

    def _has_too_much(self, used: int) -> bool:
        """Return whether to be replaced because of memory. Not before the first task, since the
        next process would use just as much."""
        limit = self._options.max_memory
        if limit is None or used <= limit:
            return False
        if not self._tasks and not self._told_memory:
            self._told_memory = True
            self._log.warning("the app alone uses more than --max-memory", used=used, limit=limit)
        return self._tasks > 0

    def _busy(self, slots: Slots) -> int:
        """How many slots are busy, or of no use: once all processes for tasks that run there alone
        have one, no slot takes another."""
        full = slots.apart >= self._options.cpu_processes
        return self._options.concurrency if full else len(slots.in_hand)

    async def _tell(
        self,
        slots: Slots,
        used: int | None,
        lengths: dict[str, int] | None = None,
        *,
        connected: bool = False,
        oldest: float = 0.0,
        cpu: Sequence[int] = (0, 0),
    ) -> None:
        self._waits.count(time.monotonic())
        self._page.ledger.sweep()
        await self._link.send(
            "beat",
            tally=self._tally.take(),
            in_hand=len(slots.in_hand),
            busy=self._busy(slots),
            memory=used,
            connected=connected,
            lengths=lengths or {},
            oldest=oldest,
            cpu=cpu,
        )


async def _look_at(client: Client, queues: Sequence[str]) -> tuple[dict[str, int], float]:
    """Return the lengths of queues, and how long ago (s) the oldest job in them was added. Raises
    DisqueError."""
    lengths: dict[str, int] = {}
    oldest = 0.0
    for name in queues:
        found = await client.qstat(name) or {}
        length, age = found.get("len"), found.get("oldest-job-age")
        lengths[name] = length if isinstance(length, int) else 0
        oldest = max(oldest, age / 1000 if isinstance(age, int) else 0.0)
    return lengths, oldest


def report(
    *, slots: int, running: int, memory: int, ending: bool, queues: Sequence[str]
) -> list[str | int]:
    """What WORKER REPORT tells: names and values in turn. Of many queues, the first ones.

    Args:
        slots: how many tasks this process runs at once. running: how many it runs now.
        memory: bytes.
    """
    fields: list[str | int] = [
        *("worker", f"{socket.gethostname()}:{os.getppid()}"),
        *("version", VERSION),
        *("slots", slots, "running", running, "memory", memory),
        *("state", "ending" if ending else "serving"),
        *("queues", len(queues)),
    ]
    room = _NAMES
    for name in queues[:_NAMED]:
        room -= len(name)
        if room < 0:
            break
        fields += ["queue", name]
    return fields


def find_app(options: Options) -> Disque:
    """Return the app named on the command line. Raises AppError."""
    app = load(options.app, options.app_dir)
    if not isinstance(app, Disque):
        raise AppError(f"{options.app} is not a Disque app, but a {type(app).__name__}")
    return app


def start(app: Disque, *, whole: bool = False) -> None:
    """Call the app's hooks for the start of a process, and before them, if this process is the
    first of the ``whole`` worker, those for that. Raises AppError."""
    for event in ["worker_start"] * whole + ["process_start"]:
        try:
            app.hooks.start(event)
        except Exception as error:
            details = "".join(traceback.format_exception(error))
            text = f"on_{event} of the app raised {describe(error)}"
            raise AppError(text, details) from error


def no_node(app: Disque, error: Exception) -> str:
    """Describe in one line why no node can be used."""
    if isinstance(error, ConnectionLost):
        return str(error)  # it names the nodes
    nodes = ", ".join(app.nodes)
    if isinstance(error, AuthError):
        return f"the node does not accept the password ({nodes}): {error}"
    return f"the node cannot be used ({nodes}): {error}"


def _trace() -> None:
    """Set up tracing according to the environment. Raises CannotStart."""
    try:
        tracing.set_up()
    except tracing.CannotTrace as error:
        raise CannotStart(str(error)) from error


def leave() -> None:
    """End this process at once, whatever threads are running."""
    if tracing.tracer is not None:
        tracing.tracer.flush(_FLUSH)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def main() -> int:
    """Run the worker process and return its exit status."""
    ours, page = inherited()
    sock = socket.socket(fileno=ours)
    orders = read_line(sock)
    options = Options.from_json(orders["options"])
    log = Logging(options.log_level, options.log_format).log
    lines_go_to(log)
    try:
        # Outside of the loop, since the app may run a loop of its own while it is imported.
        if options.otel:
            _trace()
        app = find_app(options)
        start(app, whole=orders["first"] and orders["place"] == 0)
        child = Child(
            app,
            SocketEnd(sock),
            MappedPage(page),
            options,
            place=orders["place"],
            first=orders["first"],
            log=log,
        )
        trio.run(child.run)
    except (AppError, CannotStart, DisqueError) as failure:
        seen, text = files(but=_LIBRARIES), str(failure)
        if isinstance(failure, AppError):
            seen += failure.files
            text = failure.line(debug=options.debug)
            if options.debug:
                print(failure.details, file=sys.stderr, end="", flush=True)
        sock.setblocking(True)
        with suppress(OSError):
            final = isinstance(failure, Refused)
            sock.sendall(line("failed", text=text, files=seen, final=final))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
