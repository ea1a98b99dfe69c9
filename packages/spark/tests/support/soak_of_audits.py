"""Random faults on a loaded cluster of real nodes that write event logs; afterwards the audit must
agree with the clients.

    python -m tools.soak_audit [--rounds 5] [--faults 6] [--nodes 3] [--seed N]

A round is like one of ``soak_cluster.py``. After it

- each delivery that a client saw is in the table of jobs, unless its node was killed within a
  second after it; and each job that was delivered twice is a finding,
- no confirmed job is a finding as never delivered, unless the log says that it has a gap,
- no node delivered a job of which it knew that it was acknowledged, and no clock is wrong.

The exit status is 0, or 1 if that was not the case; the seed and the faults of each round are
shown.
"""

import argparse
import random
import time
from collections.abc import Sequence
from pathlib import Path

from disque_spark.audit.rules import (
    AFTER_ACK,
    CLOCK_SKEW,
    EXPIRED,
    NEVER_DELIVERED,
    TWICE,
    Rules,
)
from packages.spark.tests.support.audited_logs import Audited, audited
from tests.support.live_cluster import live_cluster
from tests.support.live_load import ONCE, Ledger, Load
from tests.support.soak_of_clusters import DEATHS, DRAIN_SECONDS, FAULTS, OPTIONS, fault, run_rounds

TAIL = 1.0  # s before a kill that the log may not cover


class TimedLedger(Ledger):
    """Attributes:
    times: when clients got each job.
    """

    def __init__(self) -> None:
        super().__init__()
        self.times: dict[bytes, list[float]] = {}

    def taken(self, queue: bytes, id: bytes) -> bool:
        first = super().taken(queue, id)
        self.times.setdefault(id, []).append(time.time())
        return first


def compare(audit: Audited, ledger: TimedLedger, kills: Sequence[float]) -> str:
    """Compare the audit with the ledger. Returns a summary; raises AssertionError if the audit is
    wrong."""
    again = audit.found(TWICE).keys() | audit.found(AFTER_ACK).keys()
    missing = 0
    for id, times in ledger.times.items():
        name = id.decode()
        job = audit.jobs.get(name)
        seen = 0 if job is None else job["deliveries"]
        lost = sum(any(at - TAIL < got < at + TAIL for at in kills) for got in times)
        assert seen >= len(times) - lost, (name, seen, times, kills)
        missing += max(len(times) - seen, 0)
        if len(times) - lost > 1:
            assert name in again, name
    assert audit.found(TWICE).keys() <= {
        name for name, job in audit.jobs.items() if job["deliveries"] > 1
    }
    unsure = 0
    for kind in (NEVER_DELIVERED, EXPIRED):
        for name, reasons in audit.found(kind).items():
            known = name.encode() in ledger.confirmed or name.encode() in ledger.times
            assert not known or reasons == {"log-gap"}, (name, reasons)
            unsure += known
    assert not any("heard" in reasons for reasons in audit.found(AFTER_ACK).values())
    assert not [found for found in audit.findings if found.kind == CLOCK_SKEW], audit.clocks
    assert len(audit.gaps) <= len(kills)
    return (
        f"{len(audit.jobs)} jobs, {len(audit.found(TWICE))} twice, "
        f"{len(audit.found(AFTER_ACK))} after their ACK, {len(audit.gaps)} gaps, "
        f"{missing} deliveries in them, {unsure} findings due to them"
    )


def run_round(directory: Path, nodes: int, faults: int, rng: random.Random) -> str:
    """One round; returns a summary. Raises on failure."""
    options = (*OPTIONS, "--event-log", "yes", "--event-log-segment-seconds", "3")
    kills: list[float] = []
    ledger = TimedLedger()
    with live_cluster(directory, nodes, *options, proxied=True, node_timeout=1000) as cluster:
        load = Load(cluster, ledger)
        try:
            load.consume(cluster)
            load.produce(cluster, "REPLICATE", 2, timeout=1000, pause=0.05)
            load.produce(cluster, "REPLICATE", 2, "DELAY", 1, timeout=1000, pause=0.1)
            load.produce(cluster, queue=ONCE, pause=0.1)
            for _ in range(faults):
                one, other = rng.sample(range(nodes), 2)
                what = rng.choice(FAULTS)
                print(f"  {what} {one} {other}", flush=True)
                if what in DEATHS and what != "term":
                    kills += [time.time()] * (2 if what == "kill two" else 1)
                fault(cluster, what, one, other, rng)
                time.sleep(rng.uniform(0, 0.5))
            cluster.wait_joined()
            load.finish(DRAIN_SECONDS)
        finally:
            for node in cluster.running():
                node.resume()
            load.stop()
        for node in cluster:
            assert node.stop() == 0
    return compare(audited([node.directory / "events" for node in cluster], Rules()), ledger, kills)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the rounds; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.soak_audit", description=__doc__.split("\n")[0]
    )
    parser.set_defaults(rounds=5, faults=6, nodes=3)
    return run_rounds(argv, parser, run_round)
