"""The measurements of a server that speaks Disque's protocol: values of rows, by their keys in
``beside_c.ROWS``."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median
from typing import NamedTuple

from tools.bench.callgrind import Counted
from tools.bench.dialects import Disque
from tools.bench.load import LoadError, ask, dial, info, receive
from tools.bench.measure import Bench, Sample, Setting
from tools.bench.nodes import ClusterBench, Way
from tools.bench.scripts import bodies
from tools.bench.servers import SERVER_CPUS, Server, disque_server

SIZE = 100  # bytes of a job's body
NODES = 3
PIPELINE = 16
# The amount of each measurement, with ``work`` 1.
SINGLES, PIPELINED = 6_000, 24_000  # commands
CYCLES, COPIES = 1_500, 3_200  # jobs of a cluster
COUNTED = 4_000
WAKES, LOADED = 300, 200_000
PAUSE = 0.003  # s, for a server to go to sleep
REST = 1.0  # s
# After this many rests without a marked fall, the work left over from the start is done.
SETTLED, LONGEST_SETTLING = 10, 60

Values = dict[str, float]


def count(most: int, work: float, least: int = 1) -> int:
    """A share of ``most``."""
    return max(least, round(most * work))


# ---- one node ------------------------------------------------------------------------------


def of_commands(clients: int, work: float) -> list[Callable[[Bench], Values]]:
    """CPU µs per command, one by one and pipelined."""
    single = count(SINGLES, work, clients)
    many = count(PIPELINED // PIPELINE, work, clients) * PIPELINE
    units: list[Callable[[Bench], Values]] = []
    for measure in (_pings, _steps, _cycles):
        units.append(partial(measure, clients=clients, pipeline=1, commands=single))
        if measure is not _pings:
            units.append(partial(measure, clients=clients, pipeline=PIPELINE, commands=many))
    return units


def _pings(bench: Bench, clients: int, pipeline: int, commands: int) -> Values:
    return {"ping": _each(bench.pings(Setting(0, pipeline, clients), commands))}


def _steps(bench: Bench, clients: int, pipeline: int, commands: int) -> Values:
    samples = bench.steps(Setting(0, pipeline, clients), commands)
    return {sample.step + _suffix(pipeline): _each(sample) for sample in samples}


def _cycles(bench: Bench, clients: int, pipeline: int, commands: int) -> Values:
    jobs = max(1, commands // (3 * pipeline)) * pipeline
    sample = bench.cycles(Setting(0, pipeline, clients), jobs)
    return {"cycle" + _suffix(pipeline): 3 * _each(sample)}


def _suffix(pipeline: int) -> str:
    return "" if pipeline == 1 else str(pipeline)


def _each(sample: Sample) -> float:
    """CPU µs of a command."""
    return sample.cpu / sample.commands * 1e6


def wake(server: Server, times: int) -> Values:
    """The time from sending a job until a waiting worker gets it, in ms."""
    words = Disque(SIZE, waits=True)
    new = bodies(SIZE)
    found = []
    with server.blamed(), dial(server.port) as worker, dial(server.port) as producer:
        for _ in range(times):
            worker.sendall(words.take(0))
            time.sleep(PAUSE)
            started = time.perf_counter()
            producer.sendall(words.add(next(new)))
            reply = receive(worker, lambda reply: words.taken.complete(reply, 1))
            found.append(time.perf_counter() - started)
            receive(producer, lambda reply: words.added.complete(reply, 1))
            if ask(worker, words.ack(0, words.handles(reply)[0])) != b":1":
                raise LoadError("a job could not be acknowledged")
    return {"wake": median(found) * 1000}


def at_rest(servers: Sequence[Server]) -> list[float]:
    """CPU ms per second of each server without any requests."""
    before = [server.cpu_seconds() for server in servers]
    started = time.perf_counter()
    time.sleep(REST)
    used = [server.cpu_seconds() for server in servers]
    seconds = time.perf_counter() - started
    return [(b - a) / seconds * 1000 for a, b in zip(before, used, strict=True)]


def settle(servers: Sequence[Server], rests: int) -> None:
    """Waits until no server has fallen below half of its minimum so far for ``rests`` rests in a
    row, but for at most LONGEST_SETTLING rests."""
    least = at_rest(servers)
    calm = 0
    for _ in range(LONGEST_SETTLING):
        if calm >= rests:
            return
        used = at_rest(servers)
        calm = (
            0
            if any(now < before / 2 for now, before in zip(used, least, strict=True))
            else calm + 1
        )
        least = [min(pair) for pair in zip(used, least, strict=True)]


class File(NamedTuple):
    """An append-only file with ``jobs`` jobs in a directory, and the command that starts a node
    with it."""

    name: str
    command: Sequence[str]
    directory: Path
    jobs: int


def load(file: File) -> Values:
    """Jobs loaded per second of CPU time, including the start."""
    with disque_server(file.name, file.command, directory=file.directory) as server:
        server.wait(
            lambda: info(server.port, b"persistence")["loading"] == "0", "its file is not loaded"
        )
        used = server.cpu_seconds()
        held = int(info(server.port, b"jobs")["registered_jobs"])
        if held != file.jobs:
            raise server.failure(f"has loaded {held} jobs of {file.jobs}")
    return {"load": file.jobs / used}


def start(name: str, command: Sequence[str]) -> Values:
    """CPU ms until a PING is answered."""
    with disque_server(name, command) as server:
        return {"start": server.cpu_seconds() * 1000}


# ---- a cluster -----------------------------------------------------------------------------


def of_clusters(clients: int, work: float) -> list[Callable[[ClusterBench], Values]]:
    """CPU µs of all nodes per job with a copy on each, and jobs per second."""
    cycles = count(CYCLES, work, clients)
    copies = count(COPIES // PIPELINE, work, clients) * PIPELINE
    return [
        partial(_copied_cycles, clients=clients, jobs=cycles),
        partial(_copied_adds, clients=clients, jobs=copies),
    ]


def _copied_cycles(bench: ClusterBench, clients: int, jobs: int) -> Values:
    result = bench.measure(Way("cycle", NODES, False, 1, clients), jobs)
    return {"nodes cycle": result.usage.cpu / jobs * 1e6}


def _copied_adds(bench: ClusterBench, clients: int, jobs: int) -> Values:
    result = bench.measure(Way("add", NODES, False, PIPELINE, clients), jobs)
    return {"nodes add16": result.usage.cpu / jobs * 1e6, "nodes rate": result.rate}


# ---- instructions --------------------------------------------------------------------------


def instructions(name: str, command: Sequence[str], clients: int, work: float) -> Values:
    """Instructions per command, in the whole process.

    Not for clusters: nodes that are this slow resend packets before the answers can arrive.
    """
    single = count(COUNTED, work, clients)
    many = count(COUNTED // PIPELINE, work, clients) * PIPELINE
    found: Values = {}
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        counted = Counted(command, Path(directory))
        server = stack.enter_context(disque_server(name, counted.command, SERVER_CPUS))
        counted.begin(server.process.pid)
        bench = Bench(server, SIZE, lambda server: counted.total(server.process.pid))
        background = _rest(lambda: counted.total(server.process.pid))
        for measured in (False, True):
            for pipeline, commands in ((1, single), (PIPELINE, many)):
                setting = Setting(0, pipeline, clients)
                samples = bench.steps(setting, commands)
                samples.append(bench.cycles(setting, commands))
                if pipeline == 1:
                    samples.append(bench.pings(setting, commands))
                if measured:
                    for sample in samples:
                        own = (sample.cpu - background * sample.seconds) / sample.commands
                        key = sample.step + _suffix(pipeline)
                        found[key] = 3 * own if sample.step == "cycle" else own
    return found


def _rest(total: Callable[[], float]) -> float:
    """Instructions per second without any requests."""
    before = total()
    started = time.perf_counter()
    time.sleep(REST)
    used = total() - before
    return used / (time.perf_counter() - started)
