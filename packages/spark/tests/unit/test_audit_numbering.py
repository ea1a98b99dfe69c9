"""Nodes are numbered in the order in which runs see their logs; findings do not depend on that."""

import random

import pyarrow as pa
import pytest

from disque_spark.audit.classify import Finding
from disque_spark.audit.clocks import clocks_by_id, least_of, ranks_of
from disque_spark.audit.evidence import Logs
from disque_spark.audit.findings import clock_findings, judged
from disque_spark.audit.gaps import Gap
from disque_spark.audit.jobs import FACTS, fold, jobs_of
from disque_spark.audit.rules import Rules
from disque_spark.audit.trace import CODE_BITS, CODES, TIME_SHIFT
from packages.spark.tests.support.clock_rows import least_in

IDS = ["b" * 40, "c" * 40, "a" * 40]
RULES = Rules(settled=0, skew=2)
_WHAT = (
    "added:",
    "copied:",
    "queued:add",
    "queued:retry",
    "queued:nack",
    "queued:import",
    "delivered:",
    "exported:",
    "imported:",
    "acked:client",
    "acked:peer",
)
Event = tuple[str, str, int, str, str]  # id, queue, time, node, what


def story(rng: random.Random) -> list[Event]:
    """Jobs to which many things happen within a few ms."""
    return [
        (f"D-{IDS[0][:8]}-{job}-05a1", rng.choice("pq"), at, rng.choice(IDS), what)
        for job in range(30)
        for at, what in sorted((rng.randrange(1000, 1006), rng.choice(_WHAT)) for _ in range(9))
    ]


def found(events: list[Event], nodes: list[str]) -> tuple[list[Finding], list[dict[str, object]]]:
    """Return the findings and the jobs, with nodes numbered in this way."""
    ids, queues, times, places, kinds = zip(*events, strict=True)
    columns: dict[str, object] = {
        "id": ids,
        "queue": queues,
        "group": pa.nulls(len(events), pa.string()),
        "event": [
            time << TIME_SHIFT | nodes.index(node) << CODE_BITS | CODES[what]
            for time, node, what in zip(times, places, kinds, strict=True)
        ],
    }
    for name in FACTS:
        columns[name] = pa.array([1000_000_000 if name == "ctime" else 1] * len(events), pa.int64())
    (batch,) = jobs_of(fold(pa.table(columns)), nodes).combine_chunks().to_batches()
    clocks = clocks_by_id(least_in(least_of(batch).to_pylist()), nodes)
    gaps = [Gap(nodes.index(node), 1002, 1003) for node in IDS[:2]]
    logs = Logs(nodes, clocks.ahead, 10_000, gaps, clocks.doubt, ranks_of(nodes))
    findings = [*judged(batch, RULES, logs)[0], *clock_findings(clocks, RULES, nodes)]
    jobs = [
        {name: sorted(value) if isinstance(value, list) else value for name, value in row.items()}
        for row in batch.drop_columns("trace").to_pylist()
    ]
    return sorted(findings, key=str), sorted(jobs, key=str)


@pytest.mark.parametrize("seed", range(20))
def test_findings_and_jobs_are_the_same_however_nodes_are_numbered(seed: int) -> None:
    rng = random.Random(seed)
    events = story(rng)
    expected = found(events, IDS)
    assert len(expected[0]) > 10
    for nodes in ([IDS[1], IDS[0], IDS[2]], IDS[::-1]):
        rng.shuffle(events)
        assert found(events, nodes) == expected
