"""A night without consumers: a backlog larger than memory, on three nodes, one of which is lost.

    python -m tools.soak_backlog [--jobs 3000000] [--memory 200mb] [--server COMMAND]

Producers add jobs with two copies at three nodes with ``paging``, far more than their memory holds.
When two thirds are there, one node is killed and its files are removed; the others forget it, and
an empty node joins them. Producers go on meanwhile. Then consumers come to all three nodes, and

- every job whose ADDJOB was answered with an id is delivered and can be acknowledged,
- a job that was delivered before says so (``nacks`` or ``additional-deliveries``), unless its
  producer got no answer and added it again,
- no node refuses jobs for lack of memory,
- no node holds any job in the end.

It needs as much disk as docs/sizing.md says, and refuses to start without. The exit status is 0, or
1 if a promise was broken.
"""

import argparse
import os
import shutil
import socket
import tempfile
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import hiredis

from disque_trio.process.options import count, size
from disque_trio.resp.command import encode_command
from tests.support.bus_proxy import HOST
from tests.support.harness import HANG_SECONDS, Wire, wait_until
from tests.support.live_cluster import LiveCluster, Member
from tools.bench.cli import words
from tools.bench.servers import family_cpu_seconds

QUEUE = "night"
NODES = 3
COPIES = 2
PIPELINE = 100
DIGITS = 12
ADD_TIMEOUT = 60_000  # ms
CLIENTS = 2  # of each node
PAUSE_SECONDS = 0.2
TELL_SECONDS = 10.0
OVERHEAD = 200  # bytes of a job in a file, besides its body
MB = 1_000_000


class Broken(Exception):
    """A promise was broken; the text says which."""


@dataclass(frozen=True, slots=True)
class Story:
    """How much happens. ``command`` starts a node; without one the tests' own does. With
    ``rewrites`` append-only files are rewritten as they grow."""

    jobs: int
    body: int
    memory: int
    retry: int = 300
    node_timeout: int = 15_000
    rewrites: bool = True
    command: Sequence[str] = ()

    @property
    def disk(self) -> int:
        """Bytes of disk that it may need: docs/sizing.md."""
        times = 4 if self.rewrites else 2
        return self.jobs * COPIES * (self.body + OVERHEAD) * times

    @property
    def patience(self) -> float:
        """Seconds without progress after which there will be none. Some jobs may have to wait for
        their retry time: those that the lost node was adding, or queued for a node short of memory.
        """
        return 2 * self.retry + HANG_SECONDS

    def options(self) -> list[str]:
        """The options of a node."""
        given = ["--appendonly", "yes", "--paging", "yes", "--maxmemory", str(self.memory)]
        return given if self.rewrites else [*given, "--auto-aof-rewrite-percentage", "0"]


class Ledger:
    """What clients were told of each job, by its number.

    Attributes:
        confirmed: whether an ADDJOB of it was answered with an id. unsure: whether one got no
            answer, or one that leaves it open. delivered: how often it was. done: whether an
            acknowledgement was answered.
        refused: the first words of ADDJOB's errors. problems: what must never happen.
        again: deliveries after the first.
    """

    def __init__(self, jobs: int) -> None:
        self.confirmed = bytearray(jobs)
        self.unsure = bytearray(jobs)
        self.delivered = bytearray(jobs)
        self.done = bytearray(jobs)
        self.refused: Counter[str] = Counter()
        self.problems: list[str] = []
        self.again = 0
        self._lock = threading.Lock()
        self._todo = deque(range(0, jobs, PIPELINE))
        self._jobs = jobs
        self._back: list[int] = []

    def next_batch(self) -> list[int]:
        """The numbers of jobs to add; none if all are confirmed or in the hands of others."""
        with self._lock:
            if self._back:
                batch, self._back = self._back[:PIPELINE], self._back[PIPELINE:]
                return batch
            if not self._todo:
                return []
            first = self._todo.popleft()
            return list(range(first, min(first + PIPELINE, self._jobs)))

    def added(self, batch: Sequence[int], replies: Sequence[object]) -> bool:
        """Note the replies to the ADDJOBs of a batch; those that are missing never came. Returns
        whether all jobs were added."""
        with self._lock:
            for number, reply in zip(batch, replies, strict=False):
                if isinstance(reply, bytes):
                    self.confirmed[number] = 1
                else:
                    # A copy may be where its removal did not arrive.
                    self.unsure[number] = 1
                    self.refused[str(reply).partition(":")[0][:80]] += 1
                    self._back.append(number)
            for number in batch[len(replies) :]:
                self.unsure[number] = 1
                self._back.append(number)
            return all(isinstance(reply, bytes) for reply in replies)

    def taken(self, number: int, repeats: int) -> None:
        """Note a delivery of a job that says how often it was delivered before."""
        with self._lock:
            if self.delivered[number] and not self.unsure[number]:
                self.again += 1
                if not repeats:
                    self.problems.append(f"job {number} was delivered again as if it were new")
            self.delivered[number] = min(self.delivered[number] + 1, 255)

    def left(self) -> int:
        """How many confirmed jobs are not done."""
        confirmed, done = (int.from_bytes(flags) for flags in (self.confirmed, self.done))
        return (confirmed & ~done).bit_count()


class Night:
    """The nodes and their clients."""

    def __init__(self, story: Story, directory: Path, say: Callable[[str], object]) -> None:
        self.story = story
        self.ledger = Ledger(story.jobs)
        self.cluster = LiveCluster(
            directory, NODES + 1, *story.options(), node_timeout=story.node_timeout
        )
        for node in self.cluster:
            node.program = story.command
        self._spare = self.cluster.nodes.pop()  # stays at home until it is needed
        self._say = say
        self._started = time.monotonic()
        self._highest = {node.port: 0 for node in (*self.cluster, self._spare)}
        self._end = threading.Event()  # of the phase
        self._threads: list[threading.Thread] = []

    def run(self) -> None:
        """All that happens. Raises Broken."""
        story, ledger = self.story, self.ledger
        self.cluster.start()
        for node in self.cluster:
            self._employ(node, self._produce)
        self._until(lambda: ledger.confirmed.count(1) >= story.jobs * 2 // 3)
        self._replace(self.cluster[0])
        self._employ(self.cluster[-1], self._produce)
        self._until(lambda: ledger.confirmed.count(1) == story.jobs)
        self._dismiss()
        self._tell("all are added")
        for node in self.cluster:
            self._employ(node, self._consume)
        self._until(lambda: not ledger.left())
        self._tell("all are done")
        self._until(lambda: not any(node.registered() for node in self.cluster))
        self._dismiss()
        self._tell("all are forgotten")
        if ledger.problems:
            raise Broken("; ".join(ledger.problems[:10]))

    def close(self) -> None:
        """Leave nothing behind."""
        self._end.set()
        self.cluster.close()
        self._dismiss()

    def _replace(self, lost: Member) -> None:
        """Lose a node and its disk, forget it, and let an empty one join."""
        self._tell("before a node is lost")
        id = lost.id
        self.cluster.nodes.remove(lost)
        lost.kill()
        shutil.rmtree(lost.directory)
        for node in self.cluster:
            wait_until(partial(_is_failing, node, id))
        for node in self.cluster:
            assert node.ask("CLUSTER", "FORGET", id) == b"OK"
        self._tell("it is forgotten")
        self.cluster.nodes.append(self._spare)
        self._spare.start()
        self._spare.meet(self.cluster[0])
        self.cluster.wait_joined()
        self._tell("another one has joined")

    # ---- clients ---------------------------------------------------------------------------

    def _employ(self, node: Member, work: Callable[[Wire], None]) -> None:
        """Start clients of a node, which repeat ``work`` until the end of the phase or theirs."""

        def live(wire: Wire) -> None:
            try:
                while not self._end.is_set():
                    work(wire)
            except (OSError, EOFError):
                if node in self.cluster.nodes and not self._end.is_set():
                    self.ledger.problems.append(f"node {node.index} hung up")
            except Exception as problem:
                self.ledger.problems.append(repr(problem))
            finally:
                wire.close()

        for _ in range(CLIENTS):
            wire = Wire(socket.create_connection((HOST, node.port), timeout=HANG_SECONDS))
            wire.sock.settimeout(self.story.patience)
            self._threads.append(threading.Thread(target=live, args=(wire,)))
            self._threads[-1].start()

    def _dismiss(self) -> None:
        """End the phase."""
        self._end.set()
        for thread in self._threads:
            thread.join()
        self._threads.clear()
        self._end.clear()

    def _produce(self, wire: Wire) -> None:
        batch = self.ledger.next_batch()
        filling = b"x" * (self.story.body - DIGITS)
        words = (ADD_TIMEOUT, "REPLICATE", COPIES, "RETRY", self.story.retry)
        bodies = [b"%0*d%b" % (DIGITS, number, filling) for number in batch]
        replies: list[object] = []
        try:
            wire.raw(b"".join([encode_command(("ADDJOB", QUEUE, one, *words)) for one in bodies]))
            replies += [wire.read() for _ in batch]
        finally:
            added = self.ledger.added(batch, replies)
        if not batch or not added:
            self._end.wait(PAUSE_SECONDS)

    def _consume(self, wire: Wire) -> None:
        words = ("TIMEOUT", int(PAUSE_SECONDS * 1_000), "COUNT", PIPELINE, "WITHCOUNTERS")
        jobs = wire("GETJOB", *words, "FROM", QUEUE)
        if not isinstance(jobs, list):
            if isinstance(jobs, hiredis.ReplyError):
                raise Broken(f"GETJOB was answered with {jobs}")
            return
        numbers = [int(job[2][:DIGITS]) for job in jobs]
        for number, job in zip(numbers, jobs, strict=True):
            self.ledger.taken(number, job[4] + job[6])
        reply = wire("ACKJOB", *[job[1] for job in jobs])
        if not isinstance(reply, int):
            raise Broken(f"ACKJOB was answered with {reply}")
        for number in numbers:
            self.ledger.done[number] = 1

    # ---- what is seen ----------------------------------------------------------------------

    def _until(self, reached: Callable[[], bool]) -> None:
        """Wait, as long as there is progress."""
        seen: object = None
        since = told = time.monotonic()
        while not reached():
            now = time.monotonic()
            for node in self.cluster:
                self._highest[node.port] = max(self._highest[node.port], resident(node))
            ledger = self.ledger
            left = [node.registered() for node in self.cluster]
            if (progress := (ledger.confirmed.count(1), ledger.done.count(1), left)) != seen:
                seen, since = progress, now
            if now - told > TELL_SECONDS:
                told = now
                self._tell("")
            if ledger.problems or now - since > self.story.patience:
                raise Broken("; ".join(ledger.problems[:10]) or "there is no more progress")
            time.sleep(PAUSE_SECONDS)

    def _tell(self, what: str) -> None:
        """Tell what happens, and what each node takes."""
        ledger = self.ledger
        added, done = (f"{flags.count(1):,}" for flags in (ledger.confirmed, ledger.done))
        lines = [f"{time.monotonic() - self._started:5.0f} s: {added} added, {done} done"]
        lines[0] += f", {sum(ledger.refused.values()):,} refused, {ledger.again:,} again. {what}"
        for node in self.cluster:
            jobs = node.info("jobs")
            cpu = family_cpu_seconds([node.process.pid])
            lines.append(
                f"    node {node.index}: {resident(node) / MB:,.0f} MB resident, highest"
                f" {self._highest[node.port] / MB:,.0f}; {int(jobs['registered_jobs']):,} jobs,"
                f" {int(jobs['paging_jobs']):,} on disk; {disk(node.directory) / MB:,.0f} MB of"
                f" files; {cpu:,.0f} s of CPU"
            )
        self._say("\n".join(lines))


def resident(node: Member) -> int:
    """Resident bytes of a node's process."""
    pages = Path(f"/proc/{node.process.pid}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def disk(directory: Path) -> int:
    """What the files below a directory take; some may go meanwhile."""
    found = 0
    for path, _, names in os.walk(directory):
        for name in names:
            try:
                found += os.stat(os.path.join(path, name)).st_blocks * 512
            except FileNotFoundError:
                continue
    return found


def _is_failing(node: Member, id: bytes) -> bool:
    return b"fail" in node.lines()[id][2]


def run(story: Story, directory: Path, say: Callable[[str], object]) -> Ledger:
    """Let it all happen in a directory. Raises Broken."""
    free = shutil.disk_usage(directory).free
    say(f"It needs up to {story.disk / MB:,.0f} MB of disk; {free / MB:,.0f} MB are free.")
    if free < story.disk:
        raise Broken("the disk is too small")
    night = Night(story, directory, say)
    try:
        night.run()
    finally:
        night.close()
    return night.ledger


def main(argv: Sequence[str] | None = None) -> int:
    """Tell the story; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.soak_backlog", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--jobs", type=count, default=3_000_000)
    parser.add_argument("--body", type=size, default=2_000, metavar="BYTES")
    parser.add_argument("--memory", type=size, default=200 << 20, help="maxmemory of a node")
    parser.add_argument("--retry", type=count, default=300, metavar="SECONDS")
    parser.add_argument("--dir", type=Path, help="where the files are (default: $TMPDIR)")
    parser.add_argument("--no-rewrites", action="store_true", help="needs half as much disk")
    parser.add_argument("--server", type=words, default=(), metavar="COMMAND", help="starts a node")
    given = parser.parse_args(argv)
    story = Story(
        given.jobs,
        given.body,
        given.memory,
        given.retry,
        rewrites=not given.no_rewrites,
        command=given.server,
    )
    with tempfile.TemporaryDirectory(dir=given.dir) as directory:
        try:
            ledger = run(story, Path(directory), partial(print, flush=True))
        except KeyboardInterrupt:
            raise
        except BaseException as problem:  # pytest's failures are not Exceptions
            print(f"BROKEN: {problem!r}")
            return 1
    print(f"All {given.jobs:,} jobs are done, {ledger.again:,} deliveries were repeated.")
    for error, times in ledger.refused.items():
        print(f"Refused and added again {times:,} times: {error}")
    return 0
