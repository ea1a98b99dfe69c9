"""The tasks that time drives: the node's timers and the regular work."""

import gc
import math
import time

import trio

from disque_trio.server.engine import Engine

# The cyclic garbage collector stops a node with a million jobs for a second, and looking at each
# new job once costs a tenth of ADDJOB. What the node does leaves no cycles behind: everything is
# freed when it is done with. So the collector is off, and runs by hand for what libraries may
# leave, once a minute at most and only while there is little to look at: no more than some ms take.
COLLECT_SECONDS = 60
COLLECT_MAX_JOBS = 10_000
# What is due at the same time may take long: a million jobs that expire, two seconds. Clients get
# their turns in between. Only when what is due has to wait for too long, they have to wait longer,
# for else a node that is always busy would never get to it.
SLICE = 0.0003  # s
PATIENCE = 5_000  # ms that what is due may be late before the slices grow
GROWTH = 1e-6  # s of a slice for each ms beyond
LONGEST_SLICE = 0.01  # s
COLLECT_MAX_OBJECTS = 25_000


def collect_garbage() -> None:
    """Free what is only kept by cycles, and look at what is left no more. Takes long: for the
    start, when a hundred thousand objects of the libraries come to stay."""
    gc.disable()
    gc.unfreeze()
    gc.collect()
    gc.freeze()


def slice_of(late: int) -> float:
    """For how long (s) to do what is due, when the first of it is ``late`` ms late."""
    return min(SLICE + max(0, late - PATIENCE) * GROWTH, LONGEST_SLICE)


def collect_new_garbage(held: int) -> bool:
    """Free what was made since the start and is only kept by cycles, if that is quick.

    Args:
        held: the jobs, or events, that there are.

    Returns:
        whether it was done.
    """
    # To count the objects takes a while as well when they are many.
    if held > COLLECT_MAX_JOBS or len(gc.get_objects()) > COLLECT_MAX_OBJECTS:
        return False
    gc.collect()
    return True


class RequeueTimer:
    """Calls the node's ``tick`` when something is due, in slices of time."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._linger = engine.linger
        self._scope = trio.CancelScope()
        self._due = 0
        engine.on_wake_changed = self._wake_changed

    def _wake_changed(self, due: int) -> None:
        # A deadline that is too early costs one look for nothing, setting one costs each turn.
        if due and (due < self._due or not self._due):
            self._due = due
            self._scope.deadline = self._deadline()

    def _deadline(self) -> float:
        if self._due == 0 or self._engine.halted:
            return math.inf
        return trio.current_time() + max(self._due - self._engine.clock.now(), 0) / 1000

    async def run(self) -> None:
        """Run until cancelled."""
        engine = self._engine
        while True:
            self._due = engine.node.next_wake()
            with trio.CancelScope(deadline=self._deadline()) as self._scope:
                await trio.sleep_forever()
            self._do_due()

    def _do_due(self) -> None:
        """Do what is due, for the time of a slice."""
        engine = self._engine
        node = engine.node
        now = engine.clock.now()
        due = node.next_wake()
        # What a halted node delivered, the file would not know.
        if not due or due > now or engine.halted:
            return
        until = time.perf_counter() + slice_of(now - due)
        while due and due <= now:
            node.tick(now)
            due = node.next_wake()
            if time.perf_counter() >= until:
                break
        # While there is more to do the engine does not wait for clients that say nothing.
        engine.linger = 0.0 if due and due <= now else self._linger
        engine.after_node()


def _has_work(engine: Engine) -> bool:
    """Whether something is due: to free what was flushed, for instance, which nothing counts."""
    due = engine.node.next_wake()
    return 0 < due <= engine.clock.now()


async def run_cron(engine: Engine) -> None:
    """``hz`` times a second: rates, idle clients and queues, the clock; rarely the collector."""
    collect_at = trio.current_time() + COLLECT_SECONDS
    while True:
        await trio.sleep(1 / engine.config.hz)
        if trio.current_time() > collect_at and not _has_work(engine):
            collect_new_garbage(engine.node.held())
            collect_at = trio.current_time() + COLLECT_SECONDS
        ahead = engine.clock.slew()
        if abs(ahead) > 5:
            engine.log.debug("the wall clock jumped", ahead_seconds=round(ahead, 1))
        now = engine.clock.now()
        engine.stats.sample(now, engine.node.total_commands)
        engine.cron()
