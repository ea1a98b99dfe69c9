"""Counts connections and traffic of the process, and computes rates."""

from typing import Final

from disque_trio.histogram import NS, STEP_TIMES, Histogram

_SAMPLES: Final = 16


class _Rate:
    """A rate over the last 16 samples."""

    def __init__(self) -> None:
        self._last_total = 0
        self._last_ms = 0
        self._samples = [0.0] * _SAMPLES
        self._next = 0

    def sample(self, total: int, now: int) -> None:
        """Record the counter's value at ``now`` (ms)."""
        if self._last_ms and now > self._last_ms:
            rate = max(total - self._last_total, 0) * 1000 / (now - self._last_ms)
            self._samples[self._next] = rate
            self._next = (self._next + 1) % _SAMPLES
        self._last_total = total
        self._last_ms = now

    def skip(self, now: int) -> None:
        """Note that nothing was counted before ``now`` (ms)."""
        self._last_ms = now

    @property
    def zero(self) -> bool:
        """Whether all samples are zero."""
        return not any(self._samples)

    @property
    def per_second(self) -> float:
        return sum(self._samples) / _SAMPLES


class Stats:
    """Counters and rates of one process.

    Attributes:
        connections, rejected: clients that connected, and that were not admitted.
        tls_handshakes_failed: TLS connections that did not become clients.
        evicted_clients: clients dropped because, together, they held too much memory.
        input_bytes, output_bytes: from and to clients.
        cluster_input_bytes, cluster_output_bytes: from and to other nodes.
        cluster_sends: system calls that sent to another node; a turn needs one for each.
        cluster_overruns: connections to nodes dropped because too much waited for them.
        evicted_cluster_links: connections to nodes dropped because together, their incomplete
            packets took too much memory.
        cluster_links_refused: connections closed because the other side has another
            cluster-secret, or none.
        cluster_packets_refused: large packets of nodes that were skipped.
        turns: how long turns took.
        lags: how late a timer was. Both only if measured.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Start from zero."""
        self.connections = 0
        self.rejected = 0
        self.tls_handshakes_failed = 0
        self.evicted_clients = 0
        self.input_bytes = 0
        self.output_bytes = 0
        self.cluster_input_bytes = 0
        self.cluster_output_bytes = 0
        self.cluster_sends = 0
        self.cluster_overruns = 0
        self.evicted_cluster_links = 0
        self.cluster_links_refused = 0
        self.cluster_packets_refused = 0
        self.turns = Histogram(STEP_TIMES, NS)
        self.lags = Histogram(STEP_TIMES, NS)
        self._commands = _Rate()
        self._input = _Rate()
        self._output = _Rate()

    def sample(self, now: int, commands: int) -> None:
        """Record the counters at ``now`` (ms)."""
        self._commands.sample(commands, now)
        self._input.sample(self.input_bytes, now)
        self._output.sample(self.output_bytes, now)

    def skip(self, now: int) -> None:
        """Note that nothing has happened between the last sample and ``now`` (ms)."""
        for rate in (self._commands, self._input, self._output):
            rate.skip(now)

    @property
    def still(self) -> bool:
        """Whether all rates are zero, and stay so while nothing happens."""
        return self._commands.zero and self._input.zero and self._output.zero

    def fields(self) -> dict[str, str | int | float]:
        """The process's part of INFO stats."""
        return {
            "total_connections_received": self.connections,
            "instantaneous_ops_per_sec": round(self._commands.per_second),
            "total_net_input_bytes": self.input_bytes,
            "total_net_output_bytes": self.output_bytes,
            "instantaneous_input_kbps": f"{self._input.per_second / 1024:.2f}",
            "instantaneous_output_kbps": f"{self._output.per_second / 1024:.2f}",
            "total_cluster_input_bytes": self.cluster_input_bytes,
            "total_cluster_output_bytes": self.cluster_output_bytes,
            "total_cluster_sends": self.cluster_sends,
            "cluster_links_buffer_limit_exceeded": self.cluster_overruns,
            "evicted_cluster_links": self.evicted_cluster_links,
            "cluster_links_refused": self.cluster_links_refused,
            "cluster_packets_refused": self.cluster_packets_refused,
            "rejected_connections": self.rejected,
            "evicted_clients": self.evicted_clients,
            "latest_fork_usec": 0,
        }
