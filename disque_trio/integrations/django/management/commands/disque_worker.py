"""``manage.py disque_worker``: runs tasks."""

from argparse import ArgumentParser
from typing import Any

import trio
from django.core.management.base import BaseCommand, CommandError
from django.utils.autoreload import run_with_reloader

from disque_trio.integrations.django.backend import DisqueBackend
from disque_trio.integrations.django.framework import (
    DEFAULT_TASK_BACKEND_ALIAS,
    InvalidTaskBackend,
    task_backends,
)
from disque_trio.integrations.django.worker import Worker
from disque_trio.respclient.errors import DisqueError


class Command(BaseCommand):
    """Runs tasks until SIGTERM, and then finishes those that it has begun."""

    help = "Run tasks. SIGTERM or Ctrl-C: finish those that run, and end; a second one: end now."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--backend", default=DEFAULT_TASK_BACKEND_ALIAS, help="its name in TASKS"
        )
        parser.add_argument(
            "--queues", help="with commas between them, preferred ones first; by default all"
        )
        parser.add_argument("--concurrency", type=int, default=8, help="tasks at a time (8)")
        parser.add_argument("--reload", action="store_true", help="start again when code changes")

    def handle(
        self, *_: Any, backend: str, queues: str | None, concurrency: int, reload: bool, **__: Any
    ) -> None:
        """Raises CommandError: the options are wrong, or no node is there."""
        try:
            found = task_backends[backend]
        except InvalidTaskBackend as error:
            raise CommandError(f"TASKS has no backend {backend!r}") from error
        if not isinstance(found, DisqueBackend):
            raise CommandError(f"the task backend {backend!r} is none of Disque")
        for problem in found.check():
            raise CommandError(problem.msg)
        if concurrency < 1:
            raise CommandError("--concurrency has to be at least 1")
        names = queues.split(",") if queues else sorted(found.queues)
        if wrong := [name for name in names if found.queues and name not in found.queues]:
            raise CommandError(f"no queues of the task backend {backend!r}: {', '.join(wrong)}")
        if not names:
            raise CommandError("--queues has to say which: TASKS names none")

        def work() -> None:
            try:
                trio.run(Worker(found, names, concurrency).run)
            except DisqueError as error:
                raise CommandError(str(error)) from error

        if reload:
            run_with_reloader(work)
        else:
            work()
