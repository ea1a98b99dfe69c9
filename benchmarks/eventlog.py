"""The cost of the event log: CPU time of the node with and without it.

Two nodes run side by side, one with ``event-log yes``, and take turns adding, taking and
acknowledging the same jobs. The table shows the minimum over all rounds, because other load only
adds to it, and the median of the ratios of adjacent measurements. The process that writes the log
is counted separately, and kept off the node's CPU.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

from tools.bench.cli import Findings, grouped, option, ratio, size, table, words
from tools.bench.load import info
from tools.bench.measure import Bench, Sample, Setting
from tools.bench.scripts import SERIAL_DIGITS
from tools.bench.servers import (
    DISQUE_COMMAND,
    GENERATOR_CPUS,
    Server,
    cpu_seconds,
    disque_server,
)

DRAIN_SECONDS = 60.0
WITH_LOG = ("--event-log", "yes")


@dataclass(frozen=True, slots=True)
class Plan:
    """How much to measure."""

    rounds: int = option(5, "how often everything is measured", quick=1)
    jobs: int = option(50_000, "in each step", quick=1_000)
    clients: int = option(50, "connections")
    pipelines: tuple[int, ...] = option((1, 16, 64), "pipeline depths", quick=(16,))
    size: int = option(100, "bytes of a job", parse=size(SERIAL_DIGITS))
    server: tuple[str, ...] = option(DISQUE_COMMAND, "the command that starts a node", parse=words)


def written(server: Server) -> tuple[dict[str, str], float]:
    """INFO once all events so far are in files, and the CPU seconds of the writing process."""
    deadline = time.monotonic() + DRAIN_SECONDS
    while True:
        fields = info(server.port, b"persistence")
        pid = int(fields["event_log_process_id"])
        if fields["event_log_buffer_length"] == "0" and pid:
            os.sched_setaffinity(pid, GENERATOR_CPUS)
            return fields, cpu_seconds(pid)
        if time.monotonic() > deadline:
            raise server.failure("does not get its events written")
        time.sleep(0.05)


def run(plan: Plan) -> Findings:
    """Measures both nodes in every round."""
    pairs: list[tuple[Sample, Sample]] = []
    with (
        disque_server("off", plan.server) as off,
        disque_server("on", (*plan.server, *WITH_LOG)) as on,
    ):
        benches = {"off": Bench(off, plan.size), "on": Bench(on, plan.size)}
        before, cpu_before = written(on)
        for round in range(plan.rounds):
            for pipeline in plan.pipelines:
                setting = Setting(round, pipeline, plan.clients)
                # Alternate the order, so that a drift of the machine favours neither.
                order = ("off", "on") if round % 2 else ("on", "off")
                samples = {name: benches[name].steps(setting, plan.jobs) for name in order}
                written(on)
                pairs += zip(samples["off"], samples["on"], strict=True)
        after, cpu = written(on)
    titles = ["command", "pipeline", "CPU s/100k off", "on", "on/off", "median of on/off (range)"]
    rows = []
    for (command, pipeline), found in grouped(
        pairs, lambda pair: (pair[0].command, pair[0].setting.pipeline)
    ).items():
        without, with_log = zip(*found, strict=True)
        least = [min(sample.cpu_per_100k for sample in side) for side in (without, with_log)]
        middle, span = ratio(with_log, without, lambda sample: sample.cpu)
        row = [command, str(pipeline), *(f"{cost:.3f}" for cost in least)]
        rows.append([*row, f"**{least[1] / least[0]:.2f}**", f"{middle.strip('*')} ({span})"])
    events = int(after["event_log_events_written"]) - int(before["event_log_events_written"])
    cost = (cpu - cpu_before) / max(events, 1) * 100_000
    return Findings(
        f"{table(titles, rows)}\n\n{events} events written, {after['event_log_events_dropped']}"
        f" dropped; the process that writes: {cost:.3f} CPU s for 100k events"
    )
