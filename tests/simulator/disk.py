"""The disk of a machine: the append-only file and nodes.conf."""

from io import BytesIO
from random import Random

from disque_trio.aof.format import RecordReader
from disque_trio.node.core.node import Node
from tests.simulator.events import SECOND

OFF = "off"
EVERYSEC = "everysec"
ALWAYS = "always"


class Disk:
    """The files of one machine.

    Attributes:
        policy: OFF, EVERYSEC or ALWAYS.
        conf: the text of nodes.conf.
        records: the append-only file, record by record.
    """

    def __init__(self, policy: str) -> None:
        self.policy = policy
        self.conf = ""
        self.records: list[bytes] = []
        self._synced = 0  # records that outlive the machine
        self._synced_at = 0

    def append(self, records: list[bytes], now: int) -> None:
        """Write the journal of a turn at the virtual time ``now``."""
        if self.policy == EVERYSEC and now - self._synced_at >= SECOND:
            # The sync that ran in between included what was there before.
            self._synced = len(self.records)
            self._synced_at = now
        self.records += records
        if self.policy == ALWAYS:
            self._synced = len(self.records)

    def replace(self, records: list[bytes]) -> None:
        """Replace the file with a new one, which is synced."""
        self.records = records
        self._synced = len(records)

    def machine_dies(self, now: int, rng: Random) -> int:
        """Lose what was not synced, up to a random point. Returns how many records are lost."""
        if self.policy == EVERYSEC and now - self._synced_at >= SECOND:
            self._synced = len(self.records)
        keep = rng.randrange(self._synced, len(self.records) + 1)
        lost = len(self.records) - keep
        del self.records[keep:]
        self._synced = keep
        return lost

    def load(self, node: Node, queue_jobs: bool) -> None:
        """Load the append-only file into ``node``, whose ``now`` is set."""
        if self.policy == OFF and not queue_jobs:
            self.replace([])
        for command in RecordReader(BytesIO(b"".join(self.records))):
            node.load_record(command, queue_jobs)
        if self.policy == OFF:
            self.replace([])
