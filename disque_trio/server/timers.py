"""The tasks that time drives: the node's timers and the regular work."""

import gc
import math

import trio

from disque_trio.server.engine import Engine

# The collector looks at young objects often and at old ones never: a full collection over a
# million jobs stops the node for a second, and jobs are not garbage but freed when they go.
# (young objects, young collections, middle collections)
GC_THRESHOLDS = (20_000, 10, 1_000_000)


def tune_collector() -> None:
    """Keep the cyclic garbage collector away from the jobs."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


class RequeueTimer:
    """Calls the node's ``tick`` when something is due."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._scope = trio.CancelScope()
        self._due = 0
        engine.on_wake_changed = self._wake_changed

    def _wake_changed(self, due: int) -> None:
        if due != self._due:
            self._due = due
            self._scope.deadline = self._deadline()

    def _deadline(self) -> float:
        if self._due == 0:
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
            if due and due <= now:
                engine.node.tick(now)
                engine.after_node()


async def run_cron(engine: Engine) -> None:
    """``hz`` times a second: rates, idle clients and queues, the clock."""
    while True:
        await trio.sleep(1 / engine.config.hz)
        ahead = engine.clock.slew()
        if abs(ahead) > 5:
            engine.log.debug("the wall clock jumped", ahead_seconds=round(ahead, 1))
        now = engine.clock.now()
        engine.stats.sample(now, engine.node.total_commands)
        engine.cron()
