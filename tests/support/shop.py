"""The programs of examples/shop: a web program, an outbox and workers, which are replaced or killed
while orders come in; and the books, which tell what became of the orders."""

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
import urllib.request
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from tests.support import ROOT
from tests.support.commands import start_command
from tests.support.harness import HANG_SECONDS, free_port, wait_until
from tests.support.worker_rig import Worker

EXAMPLE = ROOT / "examples" / "shop"
CUSTOMERS = ("ann", "bob", "cid")
SENT = (
    "SELECT kind, number, customer, began, ended, process FROM sent "
    "JOIN orders ON orders.id = number ORDER BY began"
)


class Run(NamedTuple):
    """A mail or a hook that was sent: when, and by which process."""

    began: float
    ended: float
    process: int


class Shop:
    """The programs of the shop.

    Attributes:
        orders: the numbers of the orders that were taken. kills: when something was killed.
        workers: the current ones.

    Args:
        ports: of the nodes. workers: how many.
    """

    def __init__(self, directory: Path, ports: Sequence[int], workers: int) -> None:
        self.workers: list[Worker] = []
        self.orders: list[int] = []
        self.kills: list[float] = []
        self._directory = directory
        self._nodes = [f"127.0.0.1:{port}" for port in ports]
        self._url = f"disque://{','.join(self._nodes)}"
        self._file = directory / "shop.db"
        self._database = {"SHOP_DATABASE": f"sqlite:///{self._file}"}
        self._environ = {**os.environ, "DISQUE_URL": self._url, **self._database}
        self._site = f"http://127.0.0.1:{free_port()}"
        self._ends = contextlib.ExitStack()
        self._count = workers
        self._started = 0

    def open(self) -> None:
        """Start all programs."""
        books = [sys.executable, str(EXAMPLE / "books.py")]
        subprocess.run(books, env=self._environ, check=True)
        self._start_web()
        self._start_outbox()
        self.workers += [self._start_worker() for _ in range(self._count)]
        wait_until(self._listens)

    def _end(self, process: "subprocess.Popen[bytes]") -> None:
        """End a process with the others."""
        self._ends.callback(process.wait, HANG_SECONDS)
        self._ends.callback(process.kill)

    def _start_web(self) -> None:
        command = [sys.executable, "-m", "uvicorn", "web:web", "--port", self._site[17:]]
        with (self._directory / "web.log").open("wb") as output:
            web = subprocess.Popen(
                command, cwd=EXAMPLE, env=self._environ, stdout=output, stderr=output
            )
        self._end(web)

    def _start_outbox(self) -> None:
        database = self._database["SHOP_DATABASE"]
        where = ("--database", database, "--nodes", *self._nodes, "--poll", "0.1")
        with (self._directory / "outbox.log").open("ab") as output:
            self.outbox = start_command("disque-outbox", *where, stdout=output, stderr=output)
        self._end(self.outbox)

    def _start_worker(self) -> Worker:
        """Start a worker with two processes, and wait until they serve."""
        self._started += 1
        directory = self._directory / f"worker-{self._started}"
        directory.mkdir()
        command = ("shop:app", "--app-dir", str(EXAMPLE), "--processes", "2", "--concurrency", "4")
        options = ("--status-file", "status", "--wait", "60")
        worker = Worker(directory, self._url, (*command, *options), environ=self._database)
        self._ends.callback(worker.close)
        worker.serves(2)
        return worker

    def replace_worker(self, number: int) -> None:
        """Start a worker in place of another, which is stopped."""
        old, self.workers[number] = self.workers[number], self._start_worker()
        assert old.stop() == 0

    def kill(self, kill: Callable[[], object]) -> None:
        """Kill something, and remember when."""
        kill()
        self.kills.append(time.time())

    def kill_worker(self, number: int) -> None:
        """Kill a worker's parent, whose processes then end, and start another one."""
        old = self.workers[number]
        self.kill(lambda: old.signal(signal.SIGKILL))
        self.workers[number] = self._start_worker()

    def kill_process(self, number: int) -> None:
        """Kill a process of a worker."""
        pid = self.workers[number].serves(2)[0]
        self.kill(lambda: os.kill(pid, signal.SIGKILL))

    def kill_outbox(self) -> None:
        """Kill the forwarder of the outbox, and start another one."""
        self.kill(self.outbox.kill)
        self._start_outbox()

    def _listens(self) -> bool:
        try:
            urllib.request.urlopen(f"{self._site}/docs", timeout=HANG_SECONDS).close()
        except OSError:
            return False
        return True

    def order(self, count: int) -> None:
        """Order something several times."""
        for _ in range(count):
            customer = CUSTOMERS[len(self.orders) % len(CUSTOMERS)]
            body = json.dumps({"customer": customer, "what": "apples"}).encode()
            headers = {"content-type": "application/json"}
            request = urllib.request.Request(f"{self._site}/orders", body, headers)
            with urllib.request.urlopen(request, timeout=HANG_SECONDS) as answer:
                self.orders.append(json.load(answer)["number"])

    def rows(self, query: str) -> list[Any]:
        """Rows of the books."""
        with contextlib.closing(sqlite3.connect(self._file, timeout=HANG_SECONDS)) as books:
            return books.execute(query).fetchall()

    def reaches(self, count: int) -> bool:
        """Whether so many orders are done."""
        [(done,)] = self.rows("SELECT count(*) FROM orders WHERE state = 'done'")
        return bool(done >= count)

    def all_sent(self) -> bool:
        """Whether each order is done, and its mail and its hook have been sent."""
        [(sent,)] = self.rows("SELECT count(DISTINCT kind || number) FROM sent")
        return self.reaches(len(self.orders)) and bool(sent == 2 * len(self.orders))

    def judge(self, one_by_one: bool = True) -> int:
        """Check the books; returns how many mails and hooks were sent again, after a kill.

        Args:
            one_by_one: whether the customers get their hooks one by one.
        """
        charged = [number for (number,) in self.rows("SELECT number FROM charges ORDER BY number")]
        assert charged == sorted(self.orders)
        sent: defaultdict[tuple[str, int], list[Run]] = defaultdict(list)
        hooks: defaultdict[str, list[Run]] = defaultdict(list)
        for kind, number, customer, *run in self.rows(SENT):
            sent[kind, number].append(Run(*run))
            if kind == "hook":
                hooks[customer].append(Run(*run))
        again = 0
        for what, runs in sent.items():
            for first, second in pairwise(runs):
                again += 1
                told = f"{what}: {runs}; kills: {self.kills}"
                assert first.process != second.process, f"twice in a process that lived: {told}"
                assert self._killed(first, second), f"twice without a kill: {told}"
        for customer, runs in hooks.items() if one_by_one else ():
            for first, second in pairwise(runs):
                alone = first.ended <= second.began or self._killed(first, second)
                assert alone, f"two at a time for {customer}: {first}, {second}"
        return again

    def _killed(self, first: Run, second: Run) -> bool:
        """Whether something was killed between them, or just before the first one ended."""
        return any(first.ended - 1 <= kill <= second.began for kill in self.kills)

    def close(self) -> None:
        """End all programs."""
        self._ends.close()


@contextlib.contextmanager
def open_shop(directory: Path, ports: Sequence[int], workers: int = 1) -> Iterator[Shop]:
    """The shop, whose programs end with the block."""
    shop = Shop(directory, ports, workers)
    try:
        shop.open()
        yield shop
    finally:
        shop.close()
