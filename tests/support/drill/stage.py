"""What a drill happens to: three nodes, a console, a worker with a small load, and Prometheus."""

import os
import re
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path

import hiredis

from disque_trio.client.sync import connect
from disque_trio.respclient.errors import DisqueError
from packages.console.tests.support.console import ConsoleProcess, console
from tests.support import PYTHONPATH
from tests.support.harness import HANG_SECONDS, free_ports, wait_until
from tests.support.live_cluster import LiveCluster, Member
from tests.support.live_helpers import packed
from tests.support.prometheus import Prometheus, prometheus, scraping
from tests.support.shims import programs
from tests.support.worker_rig import Worker

COUNT = 3
TIMEOUT = 15_000  # ms after which a silent node is lost: the default
APP = """\
import os, time
from pathlib import Path

from disque_trio.tasks import Disque

app = Disque()


@app.task(queue="mail")
def mail(number: int) -> None:
    time.sleep(0.01)


@app.task(queue="pictures")
def picture(path: str) -> None:
    if not Path("fixed").exists():
        os.kill(os.getpid(), 9)
    Path("painted").touch()


@app.task(queue="imports")
def take_in(tenant: str, number: int) -> None:
    time.sleep(0.02)
    with open("taken", "ab", buffering=0) as file:
        file.write(f"{tenant} {number}\\n".encode())
"""


class Load:
    """A thread that adds a job twenty times a second, as a program of the team would.

    Attributes:
        added: how many were. errors: what the program was told otherwise. longest: s that an
            addition took.
    """

    def __init__(self, nodes: Sequence[str]) -> None:
        self._nodes = list(nodes)
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.added = 0
        self.errors: list[str] = []
        self.longest = 0.0
        self._thread.start()

    def _run(self) -> None:
        while not self._ends.is_set():
            with suppress(OSError, DisqueError):
                self._add()

    def _add(self) -> None:
        headers = {"task": "app.mail", "content-type": "application/json"}
        with connect(self._nodes) as client:
            while not self._ends.wait(0.05):
                began = time.monotonic()
                body = f'{{"args": [{self.added}], "kwargs": {{}}}}'
                try:
                    client.add("mail", body, headers=headers, retry=10, timeout=3, unique=True)
                except (OSError, DisqueError) as error:
                    self.errors.append(f"{type(error).__name__}: {error}")
                else:
                    self.added += 1
                self.longest = max(self.longest, time.monotonic() - began)

    def end(self) -> None:
        """End it."""
        self._ends.set()
        self._thread.join(HANG_SECONDS)


class Prober:
    """A thread that asks again and again what an incident makes fail; ``errors``: the answers."""

    def __init__(self, probe: Callable[[], str]) -> None:
        self._probe = probe
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.errors: list[str] = []
        self._thread.start()

    def _run(self) -> None:
        while not self._ends.wait(0.2):
            try:
                error = self._probe()
            except (OSError, EOFError) as problem:
                error = f"{type(problem).__name__}: {problem}"
            if error:
                self.errors.append(error)

    def end(self) -> None:
        """End it."""
        self._ends.set()
        self._thread.join(HANG_SECONDS)


class Stage:
    """A cluster at work.

    Attributes:
        directory: of everything. cluster: its nodes. metrics: the port of each node. load: what is
            added. prometheus: None if it is not installed. tls_port: of the first node; 0: it has
            none.

    Args:
        server: the program of the nodes; empty: the one of the tests. proxied: whether the network
            between the nodes can be broken.
    """

    def __init__(self, directory: Path, server: str, *, proxied: bool) -> None:
        self.directory = directory
        self.cluster = LiveCluster(
            directory, COUNT, "--appendonly", "yes", proxied=proxied, node_timeout=TIMEOUT
        )
        self.metrics = [free_ports(1)[0] for _ in range(COUNT)]
        for node in self.cluster:
            node.program = (server,) if server else ()
            node.options += ["--metrics-port", str(self.metrics[node.index])]
        self.worker_metrics = free_ports(1)[0]
        self.tls_port = 0
        self._ends = ExitStack()
        self._started = 0

    @property
    def addresses(self) -> list[str]:
        """Where clients find the nodes."""
        return [f"127.0.0.1:{node.port}" for node in self.cluster]

    def enter(self, context: AbstractContextManager[object]) -> None:
        """Have ``context`` around the cluster."""
        self._ends.enter_context(context)

    @contextmanager
    def playing(self) -> Iterator["Stage"]:
        """Start everything, and end it after the block."""
        with self._ends:
            self._ends.callback(self.cluster.close)
            self.cluster.start()
            (self.directory / "app.py").write_text(APP)
            nodes = [node.port for node in self.cluster]
            self.console: ConsoleProcess = self._ends.enter_context(console(self.directory, nodes))
            self.prometheus: Prometheus | None = None
            if shutil.which("prometheus"):
                targets = {"disque": self.metrics, "disque-worker": [self.worker_metrics]}
                watching = prometheus(self.directory / "prom", scraping(targets), hasty=False)
                self.prometheus = self._ends.enter_context(watching)
            self.start_worker()
            self.load = Load(self.addresses)
            self._ends.callback(self.load.end)
            wait_until(lambda: self.worker.ended("done") > 20)
            if self.prometheus is not None:
                seen = self.prometheus
                wait_until(lambda: seen.scrapes("disque") and seen.scrapes("disque-worker"))
            yield self

    def close(self) -> None:
        """Leave nothing of a stage that could not be set up."""
        self._ends.close()

    def start_worker(self) -> None:
        """Start a worker as docs/worker.md does."""
        self._started += 1
        words = ("app:app", "--concurrency", "4", "--status-file", "status")
        url = f"disque://{','.join(self.addresses)}"
        self.worker = Worker(self.directory, url, (*words, "--metrics", str(self.worker_metrics)))
        self._ends.callback(self.worker.close)
        self.worker.serves(1)

    def add(self, task: str, *args: object, queue: str, **options: object) -> None:
        """Add a job for a task."""
        words = ", ".join(f'"{word}"' if isinstance(word, str) else str(word) for word in args)
        headers = {"task": f"app.{task}", "content-type": "application/json"}
        body = f'{{"args": [{words}], "kwargs": {{}}}}'
        with connect(self.addresses) as client:
            client.add(queue, body, headers=headers, **options)  # type: ignore[arg-type]

    def refusal(self, node: Member, *words: bytes | str | int) -> str:
        """The error that a client of ``node`` gets for a request; empty if it gets none."""
        with socket.create_connection((node.host, node.port), timeout=5) as sock:
            reader = hiredis.Reader()
            sock.sendall(packed(*words))
            while (reply := reader.gets()) is False:
                data = sock.recv(1 << 16)
                if not data:
                    return "the node closed the connection"
                reader.feed(data)
        return str(reply) if isinstance(reply, hiredis.ReplyError) else ""

    def here(self, script: str) -> str:
        """A script of the documentation, with the ports and directories of this stage."""
        ports = {f"77{11 + node.index}": str(node.port) for node in self.cluster}
        ports["7721"] = str(free_ports(1)[0])
        if self.tls_port:
            script = script.replace(
                "--tls --insecure -p 7711", f"--tls --insecure -p {self.tls_port}"
            )
        script = re.sub(r"\b77[12][1-3]\b", lambda port: ports[port[0]], script)
        places = {"abc"[node.index]: node.directory for node in self.cluster}
        script = re.sub(r"/tmp/disque/([abc])\b(?!\w)", lambda found: str(places[found[1]]), script)
        return script.replace(".venv/bin/", "").replace("/tmp/disque/", f"{self.directory}/")

    def type(self, script: str) -> str:
        """Type a script of the documentation in the directory of the first node; returns what it
        prints. Raises AssertionError if it fails."""
        path = f"{programs()}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", "-e", "-c", self.here(script)],
            cwd=self.cluster[0].directory,
            env={**os.environ, "PATH": path, "PYTHONPATH": PYTHONPATH},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=HANG_SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr
