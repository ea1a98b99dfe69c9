"""A Disque client for threads: ``disque_trio.client`` with methods that block.

Start with ``connect``; see docs/client.md. Exceptions, and the values that methods return, are
those of ``disque_trio.client``.
"""

from disque_trio.client.sync.client import Client, Schedules, connect
from disque_trio.client.sync.jobs import HeldJob, Jobs

__all__ = ["Client", "HeldJob", "Jobs", "Schedules", "connect"]
