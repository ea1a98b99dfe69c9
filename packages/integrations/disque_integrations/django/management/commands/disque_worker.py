"""``manage.py disque_worker``: runs tasks."""

from argparse import ArgumentParser
from typing import Any

import trio
from django.core.management.base import BaseCommand, CommandError
from django.utils.autoreload import run_with_reloader

from disque_integrations.django.backend import DisqueBackend
from disque_integrations.django.framework import (
    DEFAULT_TASK_BACKEND_ALIAS,
    InvalidTaskBackend,
    task_backends,
)
from disque_integrations.django.worker import Worker
from disque_trio.process.options import count
from disque_trio.respclient.errors import DisqueError


class Command(BaseCommand):
    """Runs tasks until SIGTERM, then finishes those that are running."""

    help = "Run tasks. SIGTERM or Ctrl-C finishes running tasks and exits; a second exits now."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--backend", default=DEFAULT_TASK_BACKEND_ALIAS, help="name of the backend in TASKS"
        )
        parser.add_argument(
            "--queues", help="comma-separated, preferred ones first (default: all queues)"
        )
        parser.add_argument(
            "--concurrency", type=count, default=8, help="tasks at a time (default: 8)"
        )
        parser.add_argument("--reload", action="store_true", help="restart when code changes")

    def handle(
        self, *_: Any, backend: str, queues: str | None, concurrency: int, reload: bool, **__: Any
    ) -> None:
        """Run the command. Raises CommandError if options are invalid or there is no node."""
        try:
            found = task_backends[backend]
        except InvalidTaskBackend as error:
            raise CommandError(f"TASKS has no backend {backend!r}") from error
        if not isinstance(found, DisqueBackend):
            raise CommandError(f"the task backend {backend!r} does not belong to Disque")
        for problem in found.check():
            raise CommandError(problem.msg)
        names = queues.split(",") if queues else sorted(found.queues)
        if wrong := [name for name in names if found.queues and name not in found.queues]:
            raise CommandError(f"no queues of the task backend {backend!r}: {', '.join(wrong)}")
        if not names:
            raise CommandError("--queues is required, since TASKS names no queues")

        def work() -> None:
            try:
                trio.run(Worker(found, names, concurrency).run)
            except DisqueError as error:
                raise CommandError(str(error)) from error

        if reload:
            run_with_reloader(work)
        else:
            work()
