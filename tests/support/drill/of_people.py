"""Incidents of people and their programs: workers, tasks, and commands that were a mistake."""

import socket
from collections import Counter

from tests.support.drill.incident import Incident, Scene
from tests.support.drill.of_machines import NOTHING, SOON, SYMPTOMS, stop_worker
from tests.support.drill.watch import ALERT, CONSOLE, LOG, LOOK, QUEUES, WORKER
from tests.support.harness import wait_until
from tests.support.live_helpers import packed

AWAY = 330.0  # s: after five minutes without a delivery a queue has no worker


# ---- workers ------------------------------------------------------------------------------------


WORKERS_DEAD = Incident(
    "all workers are dead",
    {CONSOLE: "no-worker", ALERT: "DisqueNoWorker|DisqueDown"},
    AWAY,
    SYMPTOMS,
    "Workers get nothing",
    stop_worker,
    typed=NOTHING,
    repair=lambda scene: scene.stage.start_worker(),
    done="start workers",
    is_cured=lambda scene: scene.stage.cluster[0].ask("QLEN", "mail") == 0,
)


def _poison(scene: Scene) -> None:
    scene.stage.add("picture", "a.png", queue="pictures", retry=10)


def _fix(scene: Scene) -> None:
    wait_until(lambda: _letters(scene) > 0)
    (scene.stage.directory / "fixed").touch()


def _letters(scene: Scene) -> int:
    lengths = [node.ask("QLEN", "pictures.dead") for node in scene.stage.cluster]
    return sum(length for length in lengths if isinstance(length, int))


POISON = Incident(
    "a job kills each process that takes it",
    {
        WORKER: "process",
        CONSOLE: "dead-letters",
        ALERT: "DisqueWorkerDying|DisqueDeadLetters",
    },
    SOON * 3,
    SYMPTOMS,
    "Jobs become dead letters",
    _poison,
    names={"mail": "pictures"},
    repair=_fix,
    done="fix the task",
    is_cured=lambda scene: (scene.stage.directory / "painted").exists(),
    lingers="dead-letters|DisqueDeadLetters|DisqueWorkerDying|DisqueManyRequeues|became dead",
)


# ---- commands -----------------------------------------------------------------------------------

KEPT = 500  # jobs that are purged by mistake


def _keep(scene: Scene) -> None:
    wires = [node.wire() for node in scene.stage.cluster]
    for number in range(KEPT):
        assert isinstance(wires[number % 3]("ADDJOB", "reports", f"report {number}", 5000), bytes)
    scene.stage.type("disque -p 7711 backup /tmp/disque/backup")


def _purge(scene: Scene) -> None:
    purged = [node.ask("QPURGE", "reports") for node in scene.stage.cluster]
    assert sum(count for count in purged if isinstance(count, int)) == KEPT


def _reports(scene: Scene) -> int:
    lengths = [node.ask("QLEN", "reports") for node in scene.stage.cluster]
    return sum(length for length in lengths if isinstance(length, int))


PURGED = Incident(
    "QPURGE by mistake",
    {LOG: "queue purged"},
    SOON,
    "backup.md",
    "A queue was purged by mistake",
    _purge,
    names={"mail": "reports"},
    before=_keep,
    is_cured=lambda scene: _reports(scene) == KEPT,
    lingers="reports|no-worker|NoWorker",
)


def _crowd(scene: Scene) -> None:
    stage = scene.stage
    add = b"".join(
        packed(
            "ADDJOB", "imports", f'{{"args": ["noisy", {number}], "kwargs": {{}}}}', 5000, "GROUP",
            "noisy", "HEADERS", 2, "task", "app.take_in", "content-type", "application/json",
        )
        for number in range(NOISE)
    )  # fmt: skip
    pipe(stage.cluster[0].port, add, NOISE)
    for number in range(QUIET):
        stage.add("take_in", "quiet", number, queue="imports", group="quiet")


NOISE, QUIET = 6_000, 5


def _taken(scene: Scene) -> Counter[str]:
    path = scene.stage.directory / "taken"
    lines = path.read_text().splitlines() if path.exists() else []
    return Counter(line.split()[0] for line in lines)


NOISY = Incident(
    "a tenant fills a queue that others use",
    {LOOK: "^noisy$"},
    SOON,
    SYMPTOMS,
    "One tenant floods a queue",
    _crowd,
    names={"mail": "imports"},
    is_cured=lambda scene: _taken(scene)["quiet"] == QUIET,
)


# ---- the wrong queue ----------------------------------------------------------------------------


def pipe(port: int, requests: bytes, count: int) -> None:
    """Send requests at once, and wait for that many replies of one line."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as sock:
        sock.setblocking(True)
        sent = 0
        left = count
        while left:
            sent += sock.send(requests[sent : sent + (1 << 16)]) if sent < len(requests) else 0
            left -= sock.recv(1 << 16).count(b"\n") if sent >= len(requests) else _ready(sock)


def _ready(sock: socket.socket) -> int:
    try:
        return sock.recv(1 << 16, socket.MSG_DONTWAIT).count(b"\n")
    except BlockingIOError:
        return 0


def _misplace(scene: Scene) -> None:
    body = '{"args": [0], "kwargs": {}}'
    words = ("HEADERS", 2, "task", "app.mail", "content-type", "application/json")
    chunk = 10_000
    one = packed("ADDJOB", "mails", body, 5000, "ASYNC", "RETRY", 600, *words)
    for first in range(0, scene.jobs, chunk):
        count = min(chunk, scene.jobs - first)
        node = scene.stage.cluster[first // chunk % 3]
        pipe(node.port, one * count, count)


WRONG_QUEUE = Incident(
    "{jobs:,} jobs in the wrong queue",
    {QUEUES: "mails", ALERT: "DisqueNoWorker"},
    SOON * 3,
    SYMPTOMS,
    "Jobs are in the wrong queue",
    _misplace,
    is_cured=lambda scene: _is_empty(scene, "mails"),
    lingers="mail|waits-long|no-worker|NoWorker|WaitTooLong",
)


def _is_empty(scene: Scene, queue: str) -> bool:
    return all(node.ask("QLEN", queue) in (0, None) for node in scene.stage.cluster)
