"""LATENCY: records operations that take longer than the threshold, by event."""

from typing import Final

MAX_SAMPLES: Final = 160


class LatencyMonitor:
    """The worst latency of each second, per event.

    Attributes:
        threshold: ms from which on a sample is kept; 0: off.
        events: the samples of each event, oldest first: time (s since the epoch), ms.
        worst: the highest ms ever sampled, by event.
    """

    def __init__(self) -> None:
        self.threshold = 0
        self.events: dict[bytes, list[tuple[int, int]]] = {}
        self.worst: dict[bytes, int] = {}

    def add(self, event: bytes, now: int, milliseconds: int) -> None:
        """Record at ``now`` (ms) the duration of ``event``."""
        if not 0 < self.threshold <= milliseconds:
            return
        second = now // 1000
        samples = self.events.setdefault(event, [])
        if samples and samples[-1][0] == second:
            samples[-1] = (second, max(samples[-1][1], milliseconds))
        else:
            samples.append((second, milliseconds))
            del samples[:-MAX_SAMPLES]
        self.worst[event] = max(self.worst.get(event, 0), milliseconds)

    def reset(self, events: list[bytes]) -> int:
        """Forget the named events (none named: all); return how many there were."""
        names = events or list(self.events)
        found = 0
        for name in names:
            if self.events.pop(name, None) is not None:
                self.worst.pop(name, None)
                found += 1
        return found
