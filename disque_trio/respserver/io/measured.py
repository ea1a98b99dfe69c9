"""An engine that measures how long its turns take."""

import time

from disque_trio.respserver.io.engine import Engine


class MeasuredEngine(Engine):
    """An engine that records in ``stats.turns`` how long each turn takes."""

    def turn(self, events: list[tuple[int, int]]) -> None:
        started = time.perf_counter_ns()
        super().turn(events)
        self.stats.turns.observe(time.perf_counter_ns() - started)
