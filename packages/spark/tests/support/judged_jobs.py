"""Single jobs, made of a few events, and the audit's findings about them."""

from collections.abc import Sequence

import pyarrow as pa

from disque_spark.audit.classify import Finding
from disque_spark.audit.evidence import Logs
from disque_spark.audit.findings import judged as judge
from disque_spark.audit.gaps import Gap
from disque_spark.audit.jobs import FACTS, fold, jobs_of
from disque_spark.audit.rules import Rules
from disque_spark.audit.trace import CODE_BITS, CODES, TIME_SHIFT

NODES = ["a" * 40, "b" * 40, "c" * 40]
A, B, C = range(3)
ID = f"D-{NODES[A][:8]}-job-05a1"
END = 1_000_000  # ms
RULES = Rules(settled=60, tolerance=100)

Step = tuple[int, int, str]  # time, node, what
Found = set[tuple[str, str | None]]

UNQUEUED: list[Step] = [(1000, A, "added:")]  # after which it should be queued
ADDED: list[Step] = [*UNQUEUED, (1000, A, "queued:add")]


def job_table(steps: Sequence[Step], queue: str = "q", **facts: int) -> pa.Table:
    """The job as a row of the table."""
    columns: dict[str, object] = {
        "id": [ID] * len(steps),
        "queue": [queue] * len(steps),
        "group": pa.nulls(len(steps), pa.string()),
        "event": [at << TIME_SHIFT | node << CODE_BITS | CODES[what] for at, node, what in steps],
    }
    for name in FACTS:
        columns[name] = pa.array([facts.get(name)] * len(steps), pa.int64())
    return jobs_of(fold(pa.table(columns)), NODES)


def job_row(steps: Sequence[Step]) -> dict[str, object]:
    (row,) = job_table(steps).to_pylist()
    return dict(row)


def judged(
    steps: Sequence[Step],
    gaps: Sequence[Gap] = (),
    doubt: int = 0,
    offsets: Sequence[int] = (0, 0, 0),
    queue: str = "q",
    **facts: int,
) -> Found:
    """The kind and reason of all findings."""
    doubts = [[0 if one == other else doubt for one in range(3)] for other in range(3)]
    found = findings(steps, Logs(NODES, offsets, END, gaps, doubts), queue=queue, **facts)
    assert all(finding.job == ID for finding in found)
    return {(finding.kind, finding.reason) for finding in found}


def findings(
    steps: Sequence[Step], logs: Logs, rules: Rules = RULES, queue: str = "q", **facts: int
) -> list[Finding]:
    (batch,) = job_table(steps, queue, **facts).combine_chunks().to_batches()
    return judge(batch, rules, logs)[0]


def deciding(steps: Sequence[Step], gaps: Sequence[Gap], **facts: int) -> set[tuple[str, str]]:
    """The kind of the finding, and the numbers of the nodes whose logs would decide; the detail
    names them."""
    found = findings(steps, Logs(NODES, (0, 0, 0), END, gaps), **facts)
    for finding in found:
        assert all(node[:8] in finding.detail for node in finding.would_decide)
        assert ("would decide" in finding.detail) == bool(finding.would_decide)
    return {
        (finding.kind, "".join(str(NODES.index(node)) for node in finding.would_decide))
        for finding in found
    }


def never(reason: str | None) -> Found:
    return {("never-delivered", reason)}
