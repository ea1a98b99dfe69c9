"""What the event log costs a node: CPU of the engine process with and without it.

    python -m tools.bench.eventlog [--rounds N] [--jobs N] [--clients N] [--server COMMAND]

Two nodes run side by side, one with `event-log yes`, and are measured in turn: adding, taking and
acknowledging the same jobs. Shown is the least of all rounds, since whatever else the machine does
only adds to it, and the median of the ratios of two measurements next to each other in time. The
process that writes the log is counted by itself, and kept off the CPU of the node.
"""

from __future__ import annotations

import argparse
import os
import shlex
import socket
import time
from collections.abc import Sequence
from statistics import median

from tools.bench.load import connections
from tools.bench.measure import Bench, Sample, Setting
from tools.bench.servers import (
    DISQUE_COMMAND,
    GENERATOR_CPUS,
    Server,
    ServerError,
    disque_server,
)
from tools.bench.workloads import encode

PIPELINES = (1, 16, 64)
SIZE = 100  # bytes of a job
DRAIN_SECONDS = 60.0
WITH_LOG = ("--event-log", "yes")


def info(server: Server) -> dict[str, str]:
    """INFO persistence."""
    with connections(server.port, 1) as (sock,):
        sock.setblocking(True)
        text = _bulk(sock, encode(b"INFO", b"persistence"))
    pairs = (line.split(":", 1) for line in text.splitlines() if ":" in line)
    return dict(pairs)


def _bulk(sock: socket.socket, request: bytes) -> str:
    sock.sendall(request)
    data = b""
    while b"\r\n" not in data:
        data += sock.recv(4096)
    head, _, rest = data.partition(b"\r\n")
    while len(rest) < int(head[1:]) + 2:
        rest += sock.recv(4096)
    return rest.decode()


def written(server: Server) -> dict[str, str]:
    """INFO when all events so far are in files."""
    deadline = time.monotonic() + DRAIN_SECONDS
    while True:
        fields = info(server)
        if fields["event_log_buffer_length"] == "0" and fields["event_log_process_id"] != "0":
            return fields
        if time.monotonic() > deadline:
            raise server.failure("does not get its events written")
        time.sleep(0.05)


def writer_cpu(fields: dict[str, str]) -> float:
    """CPU seconds of the process that writes the log."""
    pid = int(fields["event_log_process_id"])
    os.sched_setaffinity(pid, GENERATOR_CPUS)
    return time.clock_gettime((~pid << 3) | 2)


def measure(command: Sequence[str], rounds: int, jobs: int, clients: int) -> None:
    """Measure and print."""
    with (
        disque_server("off", command) as off,
        disque_server("on", (*command, *WITH_LOG)) as on,
    ):
        benches = {"off": Bench(off, SIZE), "on": Bench(on, SIZE)}
        found: dict[tuple[int, str], list[tuple[Sample, Sample]]] = {}
        before = written(on)
        writer_before = writer_cpu(before)
        for round in range(rounds):
            for pipeline in PIPELINES:
                setting = Setting(round, pipeline, clients)
                # Who goes first changes, so that a drift of the machine favours nobody.
                order = ("off", "on") if round % 2 else ("on", "off")
                samples = {name: benches[name].steps(setting, jobs) for name in order}
                written(on)
                for pair in zip(samples["off"], samples["on"], strict=True):
                    found.setdefault((pipeline, pair[0].command), []).append(pair)
        after = written(on)
        spent = writer_cpu(after) - writer_before
    name = "event_log_events_written"
    events = int(after[name]) - int(before[name])
    print("| command | pipeline | CPU s/100k off | on | on/off | median of on/off (range) |")
    print("| --- | --- | --- | --- | --- | --- |")
    for (pipeline, command_name), pairs in found.items():
        ratios = [on_.cpu / off_.cpu for off_, on_ in pairs]
        costs = [min(s.cpu_per_100k for s in side) for side in zip(*pairs, strict=True)]
        print(
            f"| {command_name} | {pipeline} | {costs[0]:.3f} | {costs[1]:.3f} |"
            f" **{costs[1] / costs[0]:.2f}** |"
            f" {median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f}) |"
        )
    dropped = after["event_log_events_dropped"]
    print(
        f"\n{events} events written, {dropped} dropped; the process that writes:"
        f" {spent / max(events, 1) * 100_000:.3f} CPU s for 100k events"
    )


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser("python -m tools.bench.eventlog", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=50_000, help="in each step (%(default)s)")
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--server", default="", help="the command of another build of the node")
    options = parser.parse_args()
    os.sched_setaffinity(0, GENERATOR_CPUS)
    command = shlex.split(options.server) or DISQUE_COMMAND
    try:
        measure(command, options.rounds, options.jobs, options.clients)
    except ServerError as failure:
        raise SystemExit(f"bench: {failure}") from failure


if __name__ == "__main__":
    main()
