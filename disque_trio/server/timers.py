"""The tasks that time drives: the node's timers and the regular work."""

import gc
import math

import trio

from disque_trio.server.engine import Engine

# The cyclic garbage collector stops a node with a million jobs for a second, and looking at each
# new job once costs a tenth of ADDJOB. What the node does leaves no cycles behind: everything is
# freed when it is done with. So the collector is off, and runs by hand for what libraries may
# leave, once a minute at most and only while there is little to look at: no more than some ms take.
COLLECT_SECONDS = 60
COLLECT_MAX_JOBS = 10_000
COLLECT_MAX_OBJECTS = 25_000


def collect_garbage() -> None:
    """Free what is only kept by cycles, and look at what is left no more. Takes long: for the
    start, when a hundred thousand objects of the libraries come to stay."""
    gc.disable()
    gc.unfreeze()
    gc.collect()
    gc.freeze()


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
    """Calls the node's ``tick`` when something is due."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
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
            now = engine.clock.now()
            due = engine.node.next_wake()
            # What a halted node delivered, the file would not know.
            if due and due <= now and not engine.halted:
                engine.node.tick(now)
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
