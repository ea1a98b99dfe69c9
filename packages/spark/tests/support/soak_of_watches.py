"""Random faults around a watch of real nodes; afterwards its receivers must know what an audit
finds.

    python -m tools.soak_watch [--seconds 180] [--seed N]

Two nodes write event logs in small, compressed segments. Jobs are added, done, returned and
abandoned. Meanwhile the watch, its JVM and its workers are killed, nodes are killed and restarted,
and the webhook refuses, hangs, answers nonsense or disappears. At the end

- the findings reported to the webhook, the queue and in the lines, minus those reported as gone,
  equal those of an audit of the same logs in a separate directory,
- both directories have the same jobs, findings and minutes, and
- each complete minute was reported with its correct figures.

The exit status is 0, or 1 if that was not the case; the seed and the faults are shown, and the
files of a failure are kept in a directory.
"""

import argparse
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import pyarrow.parquet as pq

from disque_spark.audit.rules import TOLD
from disque_spark.audit.store import Store
from disque_spark.audit.tables import table_files
from packages.spark.tests.support.webhooks import MODES, Book, Found, Web, key
from tests.support.harness import (
    LiveNode,
    free_port,
    join,
    start_process,
    wait_for_ping,
)

LOOK_SECONDS = 300.0
PAUSE_SECONDS = 25.0  # at most, between two faults: a watch needs time to start and to look
NOTICES, NOTICE_RETRY = "notices", 2  # a killed node queues nothing before its retry time
LINE = re.compile(r"(?:20\S+ \S+ )?(found|gone) ([a-z-]+)(?: \((\S+)\))?(?: (D-\S+) of )?")
OPTIONS = (
    *("--event-log", "yes", "--event-log-compress", "yes", "--appendonly", "yes"),
    *("--event-log-segment-size", "32kb", "--event-log-segment-seconds", "7"),
)


class Load(threading.Thread):
    """Adds jobs, and processes most of them; ignores errors of the nodes."""

    def __init__(self, nodes: list[LiveNode], seed: int) -> None:
        super().__init__(daemon=True)
        self.nodes = nodes
        self.over = threading.Event()
        self._random = random.Random(seed)
        self.added = 0

    def run(self) -> None:
        while not self.over.is_set():
            node = self._random.choice(self.nodes)
            try:
                wire = node.wire()
            except OSError:
                self.over.wait(0.2)
                continue
            try:
                self._work(wire)
            except (OSError, EOFError, AssertionError):
                self.over.wait(0.1)
            finally:
                wire.close()

    def _work(self, wire: Any) -> None:
        for _ in range(20):
            queue = self._random.choice(("work", "work", "mail", "nobody", "bad"))
            if queue == "nobody" and self._random.random() < 0.7:
                continue
            wire("ADDJOB", queue, "x" * 20, 2000, "RETRY", 3, "TTL", 3600)
            self.added += 1
            jobs = wire("GETJOB", "NOHANG", "COUNT", 5, "FROM", "work", "mail", "bad")
            for name, id, _ in jobs or ():
                if name == b"bad":
                    wire("NACK", id)
                elif self._random.random() < 0.97:
                    wire("ACKJOB", id)
            self.over.wait(0.05)


class Watching:
    """The watch as a process, which is restarted when it has ended."""

    def __init__(self, command: Sequence[str], directory: Path) -> None:
        self._command = command
        self._out = (directory / "out").open("ab")
        self.errors = directory / "err"
        self._err = self.errors.open("ab")
        self.process: subprocess.Popen[bytes] | None = None
        self.ends: list[int] = []

    def keep(self) -> None:
        """Start it, unless it is running."""
        if self.process is None or self.process.poll() is not None:
            if self.process is not None:
                self.ends.append(self.process.returncode)
            self.process = subprocess.Popen(
                self._command, stdout=self._out, stderr=self._err, start_new_session=True
            )

    def below(self, name: str) -> list[int]:
        """Its descendants whose command contains this."""
        assert self.process is not None
        table = subprocess.run(
            ["ps", "-eo", "pid=,ppid=,args="], capture_output=True, text=True
        ).stdout
        rows = [line.split(None, 2) for line in table.splitlines()]
        family = {self.process.pid}
        for _ in range(5):
            family |= {int(pid) for pid, parent, _ in rows if int(parent) in family}
        return [
            int(pid)
            for pid, _, args in rows
            if int(pid) in family and int(pid) != self.process.pid and name in args
        ]

    def end(self) -> int:
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(LOOK_SECONDS)


def kill(pids: Sequence[int]) -> int:
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    return len(pids)


class Round:
    """The cluster, the watch and its receivers, and their faults."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.directory = directory
        self.random = random.Random(seed)
        self.web = Web(free_port())
        self.nodes = [self._start(name) for name in ("a", "b")]
        join(self.nodes)
        self.away = self._start(NOTICES)
        self.away.ask("QSET", NOTICES, "RETRY", NOTICE_RETRY)
        self.load = Load(self.nodes, seed)
        self.logs = [str(directory / name / "events") for name in ("a", "b")]
        self.output = directory / "live"
        self.arguments = [*self.logs, "--output", str(self.output), "--settled", "5"]
        more = ["--every", "2", "--health-file", str(directory / "health")]
        more += ["--conf", "spark.driver.memory=1g", "--nodes", f"127.0.0.1:{self.away.port}"]
        more += ["--webhook", f"http://127.0.0.1:{self.web.server_port}/", "--to-queue", NOTICES]
        self.watch = [*pipeline("watch"), *self.arguments, *more]
        self.watching = Watching(self.watch, directory)

    def _start(self, name: str, port: int | None = None) -> LiveNode:
        directory = self.directory / name
        directory.mkdir(exist_ok=True)
        port = port or free_port()
        node = start_process(directory, port, "--port", str(port), *OPTIONS)
        assert wait_for_ping(node)
        return node

    def faults(self) -> dict[str, Callable[[], object]]:
        watching = self.watching

        def killed() -> object:
            assert watching.process is not None
            watching.process.kill()
            watching.process.wait()
            return "killed"

        def restarted() -> object:
            place = self.random.randrange(2)
            node = self.nodes[place]
            hard = self.random.random() < 0.7
            node.kill() if hard else node.stop()
            time.sleep(self.random.random() * 3)
            node.close()
            self.nodes[place] = self._start("ab"[place], node.port)
            return "killed" if hard else "stopped"

        def webhook() -> object:
            self.web.mode = self.random.choice(MODES)
            return self.web.mode

        def queue() -> object:
            self.away.kill()
            time.sleep(5)
            port = self.away.port
            self.away.close()
            self.away = self._start(NOTICES, port)
            return "5 s"

        def writer() -> object:
            node = self.random.choice(self.nodes)
            return kill([int(node.info("persistence")["event_log_process_id"])])

        return {
            "watch": killed,
            "jvm": lambda: kill(watching.below("org.apache.spark.deploy.SparkSubmit")),
            "workers": lambda: kill(watching.below("pyspark.daemon")),
            "node": restarted,
            "log writer": writer,
            "webhook": webhook,
            "queue": queue,
            "audit": lambda: subprocess.Popen(
                [*pipeline("audit"), *self.arguments],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            ).wait(LOOK_SECONDS),
        }

    def go(self, seconds: float) -> None:
        self.watching.keep()
        self.load.start()
        threading.Thread(target=self.web.serve_forever, daemon=True).start()
        faults = self.faults()
        begun = time.monotonic()
        while time.monotonic() - begun < seconds:
            time.sleep(self.random.random() * PAUSE_SECONDS)
            self.watching.keep()
            name = self.random.choice(list(faults))
            say(f"{time.monotonic() - begun:5.0f} s {name}: {faults[name]()}")
        self.web.mode = "ok"
        time.sleep(3)
        self.load.over.set()
        self.load.join(60)
        if self.watching.process is not None and self.watching.process.poll() is None:
            say(f"the watch ends with {self.watching.end()}")
        say(f"it ended {Counter(self.watching.ends)} times by itself or killed")
        for node in self.nodes:
            assert node.stop() == 0
        page = ["--html", str(self.directory / "live.html"), "--looks", "1"]
        last = subprocess.run([*self.watch, *page], capture_output=True, text=True)
        assert last.returncode == 0, last.stderr
        (self.directory / "out").open("a").write(last.stdout)
        whole = [*self.logs, "--output", str(self.directory / "whole"), "--settled", "5"]
        subprocess.run([*pipeline("audit"), *whole], check=True, stdout=subprocess.DEVNULL)

    def check(self) -> None:
        whole = self.directory / "whole"
        for name, sort in (("jobs", "id"), ("queue_minutes", "minute"), ("findings", "job")):
            one, other = (sorted(map(repr, rows(place, name))) for place in (self.output, whole))
            say(f"{name}: {len(one)} rows")
            if one != other:
                diff = set(one) ^ set(other)
                raise AssertionError(f"{name} differ in {len(diff)}: {list(diff)[:4]} by {sort}")
        kept = [key(row) for row in rows(whole, "findings") if row["kind"] in TOLD]
        say(f"findings of these kinds: {Counter(kind for kind, *_ in kept)}")
        assert len(kept) == len(set(kept)), "two findings are one to receivers"
        say(f"answers of the webhook: {dict(self.web.modes)}")
        for name, book in (("webhook", self.web.book), ("queue", self._queue())):
            say(f"{name}: {book.notices} notices, {len(book.found)} stand")
            missing, more = set(kept) - book.found, book.found - set(kept)
            assert not missing, f"{name} was not told {len(missing)}: {list(missing)[:5]}"
            assert not more, f"{name} was not told that gone are {len(more)}: {list(more)[:5]}"
            manifest = Store(whole).manifest
            until = manifest.last - manifest.last % 60_000
            told = book.minutes.keys()
            for row in rows(whole, "queue_minutes"):
                minute = int(row["minute"].timestamp() * 1000)
                if minute < until:
                    assert (minute, row["queue"]) in told, f"{name} was not told of {row}"
        lines = self._lines()
        say(f"lines: {len(lines)} stand")
        assert lines == set(kept), f"lines differ: {list(lines ^ set(kept))[:5]}"

    def _queue(self) -> Book:
        """The notices in the queue, once its node has no more jobs of it."""
        notices = []
        until = time.monotonic() + 20 * NOTICE_RETRY
        scan: Any = None
        while scan is None or scan[1]:
            assert time.monotonic() < until, "the queue keeps notices that nobody gets"
            wanted = ("GETJOB", "TIMEOUT", 500, "COUNT", 100, "FROM", NOTICES)
            for _, id, body in cast(list[Any], self.away.ask(*wanted) or []):
                notices.append(json.loads(body))
                self.away.ask("FASTACK", id)
            scan = self.away.ask("JSCAN", 0, "BUSYLOOP", "QUEUE", NOTICES)
        book = Book()
        for notice in sorted(notices, key=lambda notice: int(notice["number"])):
            book.take(notice)
        return book

    def _lines(self) -> Found:
        """The findings in the lines of the watch."""
        standing: Found = set()
        for line in (self.directory / "out").read_text().splitlines():
            said = LINE.match(line)
            assert said is not None, line
            word, *row = said.groups()
            (standing.add if word == "found" else standing.discard)(tuple(row))
        return standing

    def close(self) -> None:
        self.load.over.set()
        self.web.shutdown()
        self.web.server_close()
        process = self.watching.process
        if process is not None and process.poll() is None:
            process.kill()
            process.wait()
        for node in (*self.nodes, self.away):
            node.close()


def pipeline(command: str) -> list[str]:
    return [sys.executable, "-m", "disque_spark.pipeline", command]


def rows(output: Path, table: str) -> list[dict[str, Any]]:
    files = [str(place) for place in table_files(output, table)]
    found = [row for file in files for row in pq.ParquetFile(file).read().to_pylist()]
    names = Store(output).manifest.nodes
    if table == "jobs":  # each audit has its own numbering of nodes
        return [{**row, "trace": len(row["trace"])} for row in found]
    return found if names else []


def say(text: str) -> None:
    print(text, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=180)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    say(f"seed {options.seed}")
    directory = Path(tempfile.mkdtemp(prefix="watching-"))
    it = Round(directory, options.seed)
    try:
        it.go(options.seconds)
        it.check()
    except AssertionError as wrong:
        say(f"wrong: {wrong}")
        say(it.watching.errors.read_text()[-2000:])
        say(f"kept: {directory}")
        return 1
    finally:
        it.close()
    shutil.rmtree(directory, ignore_errors=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
