"""Forwards an outbox once, and kills itself with SIGKILL at a step of the first batch.

``python -m packages.integrations.tests.support.outbox_killed DATABASE NODE STEP``
"""

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from disque_integrations.outbox.forwarder import Forwarder
from disque_integrations.outbox.sender import DisqueSender
from disque_integrations.outbox.sql import SqlBatch, SqlStore, engine_for
from disque_trio.client.batch import NewJob
from disque_trio.client.urls import Cluster
from disque_trio.process.logs import Logging
from disque_trio.respclient.errors import DisqueError

STEPS = ("taken", "half sent", "sent", "deleted", "committed")


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class DyingSender(DisqueSender):
    """Kills the process before or after sending."""

    step = ""

    def send(self, jobs: Sequence[NewJob]) -> list[str | DisqueError]:
        if self.step == "taken":
            die()
        if self.step == "half sent":
            super().send(jobs[: len(jobs) // 2])
            die()
        answers = super().send(jobs)
        if self.step == "sent":
            die()
        return answers


class DyingStore(SqlStore):
    """Kills the process before or after the commit."""

    step = ""

    @contextmanager
    def batch(self, limit: int, now: float) -> Iterator[SqlBatch]:
        with super().batch(limit, now) as batch:
            yield batch
            if self.step == "deleted":
                die()
        if self.step == "committed":
            die()


def main(database: str, node: str, step: str) -> None:
    DyingSender.step = DyingStore.step = step
    sender = DyingSender(Cluster.of(node), 3600)
    forwarder = Forwarder(DyingStore(engine_for(database)), sender, Logging("warning").log)
    forwarder.step()


if __name__ == "__main__":
    main(*sys.argv[1:])
