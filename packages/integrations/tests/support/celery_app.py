"""Celery programs. ``celery -A packages.integrations.tests.support.celery_app`` finds ``app``; the
environment names the node, and the file in which tasks record that they ran."""

import os
import time
from pathlib import Path
from typing import Any

from celery import Celery

import disque_integrations.celery  # noqa: F401 - makes disque:// known


def program(broker: str | None, **settings: Any) -> Celery:
    """A program with the tasks below."""
    program = Celery("tests", broker=broker, backend="disque://", set_as_current=False)
    program.conf.update(
        broker_transport_options={"retry": 5},
        broker_connection_retry_on_startup=True,
        result_backend_always_retry=True,
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        worker_hijack_root_logger=False,
    )
    program.conf.update(settings)
    for function in (add, total, fail, told):
        program.task(function, name=function.__name__)
    program.task(third_time, name="third_time", bind=True)
    return program


def add(a: int, b: int) -> int:
    return a + b


def total(numbers: list[int]) -> int:
    return sum(numbers)


def fail() -> None:
    raise ValueError("no")


def third_time(self: Any) -> int:
    """Succeeds at the third attempt."""
    if self.request.retries < 2:
        raise self.retry(countdown=0.05)
    return int(self.request.retries)


def told(name: str, seconds: float = 0.0, file: str | None = None) -> None:
    """Record that it ran, and take ``seconds``."""
    line = f"{name} {os.getpid()}\n".encode()
    log = os.open(file or os.environ["CELERY_FILE"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(log, line)
    os.close(log)
    time.sleep(seconds)


def ran(file: Path) -> list[tuple[str, int]]:
    """The names of recorded tasks, and the ids of their processes."""
    lines = file.read_text().splitlines() if file.exists() else []
    return [(name, int(pid)) for name, pid in (line.split() for line in lines)]


app = program(os.environ.get("CELERY_BROKER"))
