"""Runs bulk actions, on all jobs that match a filter, a few steps at a time."""

import secrets
import time
from typing import Final

import trio

from disque_console.io.calls import Calls
from disque_console.io.jobs import STEP, read_page
from disque_console.model.actions import ACTIONS
from disque_console.model.bulk import MOST, Bulk, Phase, Walk
from disque_console.model.job_scans import JobFilter
from disque_trio.overview.nodes import Nodes
from disque_trio.respclient.errors import ConnectionLost, DisqueError

SECONDS: Final = 0.2  # length of a round
LONGER: Final = 2.0  # length of a round when the user has to start each one
A_ROUND: Final = 500  # jobs that a node visits for one JSCAN while the run acts on them
KEPT: Final = 3_600.0  # s before an idle run is forgotten
REMEMBERED: Final = 5 * MOST  # jobs in all runs together when a new one begins
RUNS: Final = 50  # of all visitors together; the one idle for longest is dropped


class Bulks:
    """The runs of a console. They advance only while their page is open, or on a click.

    Args:
        nodes: the known nodes.
    """

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._runs: dict[str, Bulk] = {}
        self._busy: dict[str, trio.Event] = {}  # set when a round is over

    def begin(
        self, action: str, fields: dict[str, str], wanted: JobFilter, owner: str, back: str
    ) -> Bulk:
        """Start a run, which first counts. Raises ValueError if the fields are invalid."""
        self._tidy()
        id = secrets.token_hex(12)
        walk = Walk(self._here())
        run = Bulk(id, action, fields, wanted, owner, back, walk, time.monotonic())
        run.check()
        self._note_away(run)
        self._runs[id] = run
        if walk.over:
            run.counts([])
        return run

    def get(self, id: str, owner: str) -> Bulk | None:
        """A run of this visitor; None if there is none."""
        run = self._runs.get(id)
        return run if run is not None and run.owner == owner else None

    def confirm(self, run: Bulk) -> None:
        """Start acting on the counted jobs."""
        run.confirm(self._here())
        self._note_away(run)

    async def go_on(self, run: Bulk, calls: Calls, seconds: float = SECONDS) -> None:
        """Advance for ``seconds``, or until the run ends or needs confirmation. If somebody else is
        advancing it, only wait for that."""
        if run.id in self._busy:
            with trio.move_on_after(seconds):
                await self._busy[run.id].wait()
            return
        over = self._busy[run.id] = trio.Event()
        run.touched = time.monotonic()
        until = trio.current_time() + seconds
        try:
            while run.working:
                await self._step(run, calls)
                if trio.current_time() >= until:
                    break
        finally:
            del self._busy[run.id]
            over.set()

    async def stop(self, run: Bulk) -> None:
        """Stop the run. Returns when the nodes have answered all commands already sent."""
        run.stop()
        over = self._busy.get(run.id)
        if over is not None:
            await over.wait()

    async def _step(self, run: Bulk, calls: Calls) -> None:
        """One JSCAN, and the action on what it found."""
        walk, phase = run.walk, run.phase
        ids: list[str] = []
        if not walk.over:
            state = self._nodes.by_id(walk.left[0])
            if state is None or not state.here:
                walk.fails(state.address if state else walk.left[0][:8], "unreachable")
            else:
                count = STEP if phase is Phase.COUNTING else A_ROUND
                reply = await calls.to(
                    state.address, "JSCAN", walk.cursor, "COUNT", count, *run.wanted.words
                )
                if run.phase is not phase:
                    return  # it was stopped meanwhile
                try:
                    cursor, ids = read_page(reply, run.wanted)
                    if phase is Phase.DOING:
                        await self._act(run, calls, state.address, ids)
                except DisqueError as error:
                    walk.fails(state.address, str(error))
                else:
                    walk.advance(cursor, min(count, state.number("registered_jobs") or count))
        if run.phase is Phase.COUNTING:
            run.counts(ids)
        elif run.phase is Phase.DOING:
            run.goes_on()

    async def _act(self, run: Bulk, calls: Calls, address: str, ids: list[str]) -> None:
        """Raises ConnectionLost if the node stops answering."""
        for jobs in run.takes(address, ids):
            orders = ACTIONS[run.action].make(run.form(jobs))
            replies = await calls.many(address, [order.command for order in orders])
            for order, reply in zip(orders, replies, strict=True):
                run.hears(order, reply)
            for reply in replies:
                if isinstance(reply, ConnectionLost):
                    raise reply
            if run.phase is not Phase.DOING:
                return  # it was stopped meanwhile

    def _here(self) -> list[str]:
        return sorted(state.id for state in self._nodes.here())

    def _note_away(self, run: Bulk) -> None:
        for state in self._nodes.all():
            if not state.here:
                run.walk.failed[state.address] = "unreachable"

    def _tidy(self) -> None:
        now = time.monotonic()
        ids = 0
        for at, run in enumerate(sorted(self._runs.values(), key=lambda run: -run.touched)):
            ids += len(run.found)
            old = now - run.touched > KEPT or at >= RUNS - 1 or ids > REMEMBERED
            if old and run.id not in self._busy:
                del self._runs[run.id]
