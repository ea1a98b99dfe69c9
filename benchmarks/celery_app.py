"""The program to measure with Celery; the environment tells its worker where the broker is."""

import os

from celery import Celery

import disque_integrations.celery  # noqa: F401 - makes disque:// known


def program(broker: str | None, backend: str | None) -> Celery:
    """An app with an empty task."""
    program = Celery("bench", broker=broker, backend=backend, set_as_current=False)
    program.conf.update(broker_connection_retry_on_startup=True, task_ignore_result=not backend)
    program.task(nothing, name="nothing")
    return program


def nothing(number: int) -> int:
    return number


app = program(os.environ.get("BROKER"), os.environ.get("BACKEND") or None)
