"""OpenTelemetry's metrics for messaging clients."""

from collections.abc import Mapping
from typing import Final

from opentelemetry.metrics import Meter

_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
"""Seconds, according to the conventions."""

Attributes = Mapping[str, str | int]


class Instruments:
    """Counters and histograms. They do nothing unless the program has a meter provider.

    Args:
        meter: makes them.
    """

    def __init__(self, meter: Meter) -> None:
        self._operations = meter.create_histogram(
            "messaging.client.operation.duration",
            "s",
            "Duration of messaging operation initiated by a producer or consumer client.",
            explicit_bucket_boundaries_advisory=_BUCKETS,
        )
        self._processing = meter.create_histogram(
            "messaging.process.duration",
            "s",
            "Duration of processing operation.",
            explicit_bucket_boundaries_advisory=_BUCKETS,
        )
        self._sent = meter.create_counter(
            "messaging.client.sent.messages",
            "{message}",
            "Number of messages producer attempted to send to the broker.",
        )
        self._consumed = meter.create_counter(
            "messaging.client.consumed.messages",
            "{message}",
            "Number of messages that were delivered to the application.",
        )

    def operation(self, seconds: float, attributes: Attributes) -> None:
        """Record the duration of a client operation."""
        self._operations.record(seconds, attributes)

    def processed(self, seconds: float, attributes: Attributes) -> None:
        """Record how long a job was processed."""
        self._processing.record(seconds, attributes)

    def sent(self, count: int, attributes: Attributes) -> None:
        """Count jobs that were sent to a node."""
        if count:
            self._sent.add(count, attributes)

    def consumed(self, count: int, attributes: Attributes) -> None:
        """Count jobs that were delivered to the program."""
        if count:
            self._consumed.add(count, attributes)
