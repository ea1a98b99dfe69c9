"""What a command of ``pressure`` works with. Owns the handles that commands open."""

import argparse
from typing import NamedTuple

from disque_pressure.console import TerminalCounter
from disque_pressure.queue import PressureQueue
from disque_pressure.settings import Settings
from disque_trio.redis.servers import Sentinels, Server


class Run(NamedTuple):
    """A running command.

    Attributes:
        options: its command line.
        settings, client: how to reach Redis.
        progress: the progress line.
    """

    options: argparse.Namespace
    settings: Settings
    client: Server | Sentinels
    progress: TerminalCounter

    def queue(self, name: str | None = None) -> PressureQueue:
        """Return a handle of the queue named ``name``, or else named on the command line."""
        return PressureQueue(
            self.options.name if name is None else name,
            server=self.settings.server,
            port=self.settings.port,
            db=self.settings.db,
            prefix=self.settings.prefix,
            client=self.client,
        )
