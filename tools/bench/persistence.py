"""What the append-only file costs: latencies and memory during a rewrite, and the rate of loading.

    python -m tools.bench.persistence [--jobs N] [--size BYTES] [--server COMMAND]

The node writes its file with `appendfsync everysec`, on no CPU of its own. ADDJOBs are sent at half
the rate that it can take, at fixed times whatever the replies do (an open loop); a latency counts
from the time at which the request was due, so that a pause of the node is seen by each of them.
"""

from __future__ import annotations

import argparse
import json
import select
import shlex
import signal
import subprocess
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from tools.bench.load import connections, percentile, run
from tools.bench.servers import DISQUE_COMMAND, free_port
from tools.bench.workloads import Disque, add_batches, bodies, encode, send

CLIENTS = 50
PIPELINE = 64  # while the node is filled
PROBE = 30_000  # jobs added to see how many a second the node can take
BASE_SECONDS = 15.0
TICK_MS = 1
WAIT_SECONDS = 300.0


class Node:
    """A node with an append-only file, in ``directory``."""

    def __init__(self, command: Sequence[str], directory: Path) -> None:
        self.port = free_port()
        self._log = directory / f"{self.port}.log"
        options = ["--bind", "127.0.0.1", "--port", str(self.port), "--dir", str(directory)]
        options += ["--maxmemory", "16gb", "--appendonly", "yes", "--appendfsync", "everysec"]
        with self._log.open("wb") as output:
            self.process = subprocess.Popen(
                (*command, *options, "--auto-aof-rewrite-percentage", "0"),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        self._wait(lambda: self._event("loaded") is not None)

    def _wait(self, done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + WAIT_SECONDS
        while not done():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"the node failed: {self._log.read_text()[-2000:]}")
            time.sleep(0.02)

    def _event(self, begin: str) -> float | None:
        """When the log says so (s)."""
        for line in self._log.read_text().splitlines():
            entry = json.loads(line) if line.startswith("{") else {}
            if entry.get("event", "").startswith(begin):
                return datetime.fromisoformat(entry["time"]).timestamp()
        return None

    def loading_seconds(self) -> float:
        """How long it loaded its file."""
        started, ended = self._event("ready to accept"), self._event("loaded")
        assert started is not None
        assert ended is not None
        return ended - started

    def peak(self) -> int:
        """The most memory it has had (bytes)."""
        return _high_water(self.process.pid)

    def rewriter(self) -> int | None:
        """The process that compacts the file."""
        for task in Path(f"/proc/{self.process.pid}/task").iterdir():
            for pid in (task / "children").read_text().split():
                # Just started, it still counts the memory of the node as its own.
                if b"aof.compact" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    return int(pid)
        return None

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


def _high_water(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM")), 0)


@contextmanager
def node(command: Sequence[str], directory: Path) -> Iterator[Node]:
    """A node that ends with the block."""
    running = Node(command, directory)
    try:
        yield running
    finally:
        running.kill()


class Load:
    """ADDJOBs at a fixed rate; ``latencies`` in s, from the time each was due."""

    def __init__(self, port: int, rate: float, size: int) -> None:
        self.latencies: list[float] = []
        self._port = port
        self._rate = rate
        self._body = b"x" * size

    def run(self, until: threading.Event) -> None:
        """Send until ``until`` is set."""
        request = encode(b"ADDJOB", b"load", self._body, b"0")
        now = time.perf_counter
        with connections(self._port, CLIENTS) as socks, select.epoll() as epoll:
            due: dict[int, deque[float]] = {}
            by_fd = {sock.fileno(): sock for sock in socks}
            for fd in by_fd:
                due[fd] = deque()
                epoll.register(fd, select.EPOLLIN)
            start = now()
            sent = 0
            while not until.is_set():
                while (at := start + sent / self._rate) <= now():
                    sock = socks[sent % CLIENTS]
                    # A few bytes of one client: they always fit into its socket's buffer.
                    if sock.send(request) != len(request):
                        raise SystemExit("a client's buffer is full")
                    due[sock.fileno()].append(at)
                    sent += 1
                for fd, _ in epoll.poll(TICK_MS / 1000):
                    reply = by_fd[fd].recv(1 << 16)
                    if b"-" in (reply[:1], reply[-1:]):
                        raise SystemExit(f"the node says {reply!r}")
                    ended = now()
                    waiting = due[fd]
                    for _ in range(reply.count(b"\n")):
                        self.latencies.append(ended - waiting.popleft())


def report(what: str, latencies: list[float]) -> None:
    """Print the percentiles of ``latencies`` (s)."""
    latencies.sort()
    points = [("p50", 0.5), ("p99", 0.99), ("p999", 0.999), ("worst", 1.0)]
    texts = [f"{name} {percentile(latencies, point) * 1000:.2f} ms" for name, point in points]
    print(f"{what}: {len(latencies)} ADDJOBs, {', '.join(texts)}")


def capacity(port: int, size: int) -> float:
    """ADDJOBs a second that the node takes from CLIENTS clients, one by one."""
    dialect, new = Disque(size), bodies(size)
    share = PROBE // CLIENTS
    with connections(port, CLIENTS) as socks:
        scripts = [send(add_batches(dialect, new, share, 1)) for _ in socks]
        load = run(socks, scripts)
    return load.commands / load.seconds


def fill(port: int, jobs: int, size: int) -> None:
    """Add ``jobs`` jobs."""
    dialect, new = Disque(size), bodies(size)
    with connections(port, 1) as socks:
        for start in range(0, jobs, 100_000):
            run(socks, [send(add_batches(dialect, new, min(100_000, jobs - start), PIPELINE))])


def during_rewrite(target: Node, jobs: int, size: int) -> None:
    """Latencies and memory without and with a rewrite under way."""
    fill(target.port, jobs, size)
    rate = capacity(target.port, size) / 2
    print(
        f"{jobs} jobs of {size} bytes held; load: {rate:.0f} ADDJOBs a second, half of what it can"
    )
    load = Load(target.port, rate, size)
    stop = threading.Event()
    thread = threading.Thread(target=load.run, args=(stop,))
    thread.start()
    time.sleep(BASE_SECONDS)
    base, load.latencies = load.latencies, []
    before = target.peak()
    with connections(target.port, 1) as (control,):
        control.setblocking(True)
        control.sendall(encode(b"BGREWRITEAOF"))
        started = time.monotonic()
        peak = 0
        info = encode(b"INFO", b"persistence")
        control.recv(4096)
        while time.monotonic() - started < WAIT_SECONDS:
            for _ in range(10):
                child = target.rewriter()
                peak = max(peak, 0 if child is None else _high_water(child))
                time.sleep(0.02)
            control.sendall(info)
            text = control.recv(65536)
            if b"in_progress:0" in text and b"scheduled:0" in text:
                break
    took = time.monotonic() - started
    if b"bgrewrite_status:ok" not in text:
        raise SystemExit(text.decode())
    stop.set()
    thread.join()
    report("without a rewrite", base)
    report(f"during a rewrite of {took:.1f} s", load.latencies)
    mib = 1 << 20
    after = target.peak()
    print(
        f"peak memory: node {before / mib:.0f} MiB before the rewrite, {after / mib:.0f} MiB after"
        f" it, the process that rewrites {peak / mib:.0f} MiB"
    )


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser("python -m tools.bench.persistence", description=__doc__)
    parser.add_argument(
        "--jobs", type=int, default=1_000_000, help="held, and loaded (%(default)s)"
    )
    parser.add_argument("--size", type=int, default=100, help="bytes of a job (%(default)s)")
    parser.add_argument("--server", default="", help="the command of another build of the node")
    options = parser.parse_args()
    command = shlex.split(options.server) or DISQUE_COMMAND
    with tempfile.TemporaryDirectory(prefix="bench-aof-") as name:
        directory = Path(name)
        with node(command, directory) as target:
            during_rewrite(target, options.jobs, options.size)
        with node(command, directory) as target:
            seconds = target.loading_seconds()
        aof = directory / "disque.aof"
        jobs = int(json.loads(_last_loaded(directory))["jobs"])
        size = aof.stat().st_size / 1e6
        print(f"loading: {jobs} jobs, {size:.0f} MB, {seconds:.1f} s, {jobs / seconds:.0f} jobs/s")


def _last_loaded(directory: Path) -> str:
    logs = sorted(directory.glob("*.log"), key=lambda log: log.stat().st_mtime)
    return next(line for line in logs[-1].read_text().splitlines() if '"event": "loaded"' in line)


if __name__ == "__main__":
    main()
