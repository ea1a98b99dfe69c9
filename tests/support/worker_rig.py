"""``disque-worker`` processes, and an app whose tasks write lines into a file."""

import contextlib
import json
import os
import signal
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from disque_trio.client.sync import Client, connect
from tests.support.commands import start_command
from tests.support.harness import HANG_SECONDS, wait_until
from tests.support.shims import programs

APP = """
import os, re, sys, time
from pathlib import Path
import trio
from disque_trio.tasks import Disque, current_job

VERSION = 1
HANG = 600
HERE = Path(__file__).parent
app = Disque()

def note(*words):
    line = " ".join(map(str, [*words, os.getpid()])) + "\\n"
    with open(HERE / "notes", "ab", buffering=0) as notes:
        notes.write(line.encode())

async def opened(name):
    while not (HERE / name).exists():
        await trio.sleep(0.01)

@app.task(name="quick", queue="mail", redeliver_after=30)
def quick(n):
    note("quick", n, VERSION)

@app.task(name="gate", queue="mail", redeliver_after=30)
async def gate(name):
    note("begun", name)
    await opened(name)
    note("ended", name)

@app.task(name="spin", queue="mail", timeout=0.3, retries=0, backoff=(60, 60), redeliver_after=30)
def spin():
    note("spin")
    time.sleep(60)

@app.task(name="block", queue="mail", timeout=0.3, redeliver_after=30)
async def block():
    note("block")
    if not (HERE / "blocked").exists():
        (HERE / "blocked").touch()
        time.sleep(60)

@app.task(name="die", queue="mail", redeliver_after=30)
def die(times):
    note("die")
    if len((HERE / "notes").read_text().split("die")) <= times + 1:
        os._exit(3)
    note("lives")

@app.task(name="poison", queue="mail", redeliver_after=30)
def poison():
    note("poison")
    os.kill(os.getpid(), 9)

@app.task(name="hold", queue="mail", redeliver_after=30)
def hold(n, seconds):
    note("hold", n)
    time.sleep(seconds)
    note("held", n)

@app.task(name="watch", queue="mail")
def watch():
    note("begun", "watch")
    while not current_job().lost:
        time.sleep(0.01)
    note("lost")

@app.task(name="stall", queue="mail")
async def stall(seconds):
    note("begun")
    time.sleep(seconds)
    note("ended")

@app.task(name="hog", queue="mail")
def hog(seconds):
    note("begun")
    until = time.monotonic() + seconds
    sys.setswitchinterval(1000)
    while time.monotonic() < until:
        pass
    note("ended")

@app.task(name="compute", queue="mail", process=True, timeout=HANG)
def compute(name):
    note("begun", name)
    try:
        while not (HERE / name).exists() and not current_job().lost:
            current_job().progress(0.5, "half")
            time.sleep(0.01)
    finally:
        note("left", name)
    return [name, current_job().lost]

@app.task(name="loop", queue="mail", process=True, timeout=0.5, retries=1, backoff=(0.1, 0.1))
def loop():
    note("loop")
    re.match("(a*)*b", "a" * 40)  # which keeps Python's lock

@app.task(name="crash", queue="mail", process=True, retries=0)
def crash():
    note("crash")
    os.abort()

@app.task(name="nested", queue="mail", process=True)
async def nested(n):
    if n:
        await nested.add(n - 1)
    note("nested", n)

@app.task(name="grow", queue="mail", redeliver_after=30)
def grow(megabytes):
    app.kept = bytearray(megabytes << 20)
    note("grown")

@app.task(name="sms", queue="sms", redeliver_after=30)
def sms(n):
    note("sms", n)

@app.task(name="some", queue="mail", redeliver_after=3, retries=100)
async def some(n, seconds=0.02):
    note("begun", n, time.time())
    await trio.sleep(seconds)
    note("ended", n, time.time())
"""


class Worker:
    """A worker, and its directory.

    Attributes:
        popen: its parent process. directory: of the app. output: its output so far.

    Args:
        node: its URL. terminal: a descriptor for standard error; None to send it to ``output``.
        environ: more variables.
    """

    def __init__(
        self,
        directory: Path,
        node: str,
        arguments: Sequence[str],
        terminal: int | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.directory = directory
        self.output = directory / "worker.log"
        programs()  # with the forked processes of workers
        environ = {**os.environ, **(environ or {}), "DISQUE_URL": node}
        with self.output.open("ab") as output:
            self.popen = start_command(
                "disque-worker",
                *arguments,
                cwd=directory,
                stdout=output,
                stderr=output if terminal is None else terminal,
                env={**environ, "PYTHONDONTWRITEBYTECODE": "1"},
            )
        self._seen: set[int] = set()

    def status(self) -> dict[str, Any]:
        """The contents of its status file; empty if there is none."""
        try:
            status: dict[str, Any] = json.loads((self.directory / "status").read_text())
        except FileNotFoundError:
            return {}
        self._seen.update(process["pid"] for process in status["processes"])
        return status

    def ended(self, how: str) -> int:
        """How many tasks have ended so, such as ``done``; 0 as long as it has no status file."""
        count: int = self.status().get("tasks", {}).get(how, 0)
        return count

    def pids(self, state: str = "serving") -> list[int]:
        """Its worker processes in that state."""
        processes = self.status().get("processes", [])
        return [process["pid"] for process in processes if process["state"] == state]

    def serves(self, count: int = 1) -> list[int]:
        """Wait until ``count`` processes serve; returns their ids."""

        def do_serve() -> bool:
            assert self.popen.poll() is None, self.output.read_text()
            return len(self.pids()) == count

        wait_until(do_serve)
        return self.pids()

    def last_line(self) -> str:
        """The last line of its output."""
        return self.output.read_text().splitlines()[-1]

    def signal(self, number: int) -> None:
        """Send a signal to the parent."""
        self.popen.send_signal(number)

    def ends(self) -> int:
        """Wait until the parent has ended; returns its exit status."""
        return self.popen.wait(HANG_SECONDS)

    def stop(self) -> int:
        """SIGTERM, and wait for the end."""
        self.signal(signal.SIGTERM)
        return self.ends()

    def close(self) -> None:
        """Clean up."""
        self.status()
        for pid in {self.popen.pid, *self._seen}:
            if pid != self.popen.pid or self.popen.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self.popen.wait(HANG_SECONDS)
        wait_until(lambda: not any(lives(pid) for pid in self._seen))


def lives(pid: int) -> bool:
    """Whether a process is running."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


class Rig:
    """A node, an app, and its workers.

    Attributes:
        directory: of the app, and of its tasks' notes. port: of the node in use.
    """

    def __init__(self, directory: Path, port: int) -> None:
        self.directory = directory
        self.port = port
        self._workers: list[Worker] = []
        (directory / "shop.py").write_text(APP)

    def start(
        self, *arguments: str, target: str = "shop:app", terminal: int | None = None
    ) -> Worker:
        """Start a worker with a status file, without waiting for it."""
        return self._start([target, "--status-file", "status", *arguments], terminal)

    def check(self, *arguments: str, target: str = "shop:app") -> tuple[int, str]:
        """The exit status of ``--check``, and its last line of output."""
        worker = self._start([target, "--check", "--check-timeout", "60", *arguments])
        return worker.ends(), worker.last_line()

    def _start(self, words: Sequence[str], terminal: int | None = None) -> Worker:
        worker = Worker(self.directory, f"disque://127.0.0.1:{self.port}", words, terminal)
        self._workers.append(worker)
        return worker

    def client(self) -> contextlib.AbstractContextManager[Client]:
        """A client of the node."""
        return connect([f"127.0.0.1:{self.port}"])

    def add(self, task: str, *args: object, queue: str = "mail", retry: int = 30) -> None:
        """Add a job for a task."""
        self.add_all(task, [args], queue=queue, retry=retry)

    def add_all(
        self,
        task: str,
        calls: Sequence[Sequence[object]],
        queue: str = "mail",
        retry: int = 30,
        replicate: int = 1,
    ) -> list[str]:
        """Add a job for a task for each of these arguments, on ``replicate`` nodes; returns their
        ids."""
        headers = {"task": task, "content-type": "application/json"}
        bodies = [json.dumps({"args": [*args], "kwargs": {}}) for args in calls]
        with self.client() as client:
            return client.add_many(
                queue, bodies, headers=headers, retry=retry, unique=True, replicate=replicate
            )

    def notes(self, *first: object) -> list[list[str]]:
        """The tasks' lines that begin with these words."""
        path = self.directory / "notes"
        lines = path.read_text().splitlines() if path.exists() else []
        words = [str(word) for word in first]
        return [found for line in lines if (found := line.split())[: len(words)] == words]

    def noted(self, *first: object, count: int = 1) -> list[list[str]]:
        """Wait for ``count`` of these lines."""
        wait_until(lambda: len(self.notes(*first)) >= count)
        return self.notes(*first)

    def open(self, name: str) -> None:
        """Let the ``gate`` tasks with that name end."""
        (self.directory / name).touch()

    def change(self, before: str, after: str) -> None:
        """Change the code of the app."""
        path = self.directory / "shop.py"
        text = path.read_text()
        assert before in text
        new = path.with_suffix(".new")
        new.write_text(text.replace(before, after))
        new.replace(path)

    def close(self) -> None:
        """End all running workers."""
        for worker in self._workers:
            worker.close()


@contextlib.contextmanager
def worker_rig(directory: Path, port: int) -> Iterator[Rig]:
    """A rig for the node on that port, which cleans up."""
    rig = Rig(directory, port)
    try:
        yield rig
    finally:
        rig.close()


def twice(notes: Sequence[Sequence[str]]) -> set[str]:
    """The second words that occur more than once."""
    return {word for word, count in Counter(words[1] for words in notes).items() if count > 1}
