"""What every command of `pressure` works with. Owns the handles they open."""

import argparse
from typing import Any, NamedTuple

from coredis.client import Client

from disque_trio.pressure.console import Progress
from disque_trio.pressure.queue import PressureQueue
from disque_trio.pressure.settings import Settings


class Run(NamedTuple):
    """A command that runs.

    Attributes:
        options: its command line. settings, client: where Redis is. progress: the line that counts.
    """

    options: argparse.Namespace
    settings: Settings
    client: "Client[Any] | None"
    progress: Progress

    def queue(self, name: str | None = None) -> PressureQueue:
        """A handle of the queue that the command line names, or of another."""
        return PressureQueue(
            self.options.name if name is None else name,
            server=self.settings.server,
            port=self.settings.port,
            db=self.settings.db,
            prefix=self.settings.prefix,
            client=self.client,
        )
