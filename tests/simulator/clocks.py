"""The clock of one machine: it drifts and jumps forward, and never goes back while a node runs."""

from tests.simulator.events import MS

EPOCH = 1_700_000_000_000  # ms
PPM = 1_000_000


class NodeClock:
    """ms since the epoch as one machine sees them.

    Args:
        offset: how far it is ahead of the others, in ms. rate: its speed, in millionths of the real
            one.
    """

    def __init__(self, offset: int, rate: int) -> None:
        self.rate = rate
        self._virtual = 0
        self._local = (EPOCH + offset) * MS  # µs, at the virtual time above

    def now(self, virtual: int) -> int:
        """The time that it shows at the virtual time ``virtual`` (µs), in ms."""
        return (self._local + (virtual - self._virtual) * self.rate // PPM) // MS

    def when(self, local: int) -> int:
        """The virtual time (µs) from which on it shows ``local`` ms."""
        return self._virtual - (self._local - local * MS) * PPM // self.rate + 1

    def change(self, virtual: int, rate: int, jump: int = 0) -> None:
        """From now on run at ``rate``, after a jump of ``jump`` ms."""
        self._local += (virtual - self._virtual) * self.rate // PPM + jump * MS
        self._virtual = virtual
        self.rate = rate
