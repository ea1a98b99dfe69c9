"""What the audit knows about a job that clients change, move, or delete."""

import json
import random
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from disque_spark.audit.jobs import fold, jobs_of
from disque_spark.audit.partial_jobs import read
from disque_spark.audit.rules import Rules
from disque_spark.files import location
from disque_spark.segments import Piece
from packages.spark.tests.support.audited_logs import Audited, audited
from packages.spark.tests.support.judged_jobs import ID, NODES, A, B, C

Line = tuple[int, int, str, dict[str, Any]]  # time (ms), node, kind, further keys

START = 1_780_000_000_000
LATER = 6 * 3_600_000  # ms
FACTS = {"size": 9, "repl": 1, "copies": 1, "retry": 300, "ttl": 86_400, "delay": 0}
JOB = FACTS | {"ctime": START * 1_000_000}


def text_of(line: Line, id: str = ID) -> str:
    at, node, kind, more = line
    said = {"time": START + at, "node": NODES[node], "event": kind}
    if kind not in ("started", "stopped"):
        said |= {"id": id, "queue": "q"}
    return json.dumps(said | more) + "\n"


def written(directory: Path, lines: list[Line], end: int = LATER) -> Path:
    """Write the logs of three nodes that start, do this, and stop at ``end``."""
    directory.mkdir(parents=True, exist_ok=True)
    for node, name in enumerate(NODES):
        mine = [line for line in lines if line[1] == node]
        whole = [(0, node, "started", {}), *mine, (end, node, "stopped", {})]
        path = directory / f"events-{name[:8]}-{START}-1.jsonl"
        path.write_text("".join(map(text_of, whole)))
    return directory


def audit_of(tmp_path: Path, lines: list[Line], rules: Rules | None = None) -> Audited:
    return audited([written(tmp_path / "log", lines)], rules or Rules())


def kinds_of(audit: Audited) -> dict[str, str | None]:
    return {finding.kind: finding.reason for finding in audit.findings}


def added(at: int, node: int = A, **facts: Any) -> list[Line]:
    return [(at, node, "added", JOB | facts), (at, node, "queued", {"reason": "add"})]


# ---- facts --------------------------------------------------------------------------------------


def test_a_delay_that_was_taken_back_is_not_waited_for(tmp_path: Path) -> None:
    late: list[Line] = [(10, A, "added", JOB | {"delay": 80_000})]
    assert kinds_of(audit_of(tmp_path, late)) == {}
    now: Line = (5_000, A, "updated", JOB | {"delay": 0, "reason": "client"})
    audit = audit_of(tmp_path, [*late, now])
    assert kinds_of(audit) == {"never-delivered": None}
    assert audit.jobs[ID]["delay"] == 0


def test_a_delay_counts_from_the_change(tmp_path: Path) -> None:
    job: list[Line] = [(10, A, "added", JOB | {"delay": 10})]
    for delay, lost in ((17_000, True), (18_500, False)):
        change: Line = (3_600_000, A, "updated", JOB | {"delay": delay, "reason": "client"})
        assert bool(audit_of(tmp_path, [*job, change]).findings) == lost


def test_a_retry_that_was_lowered_is_when_the_job_should_have_come_back(tmp_path: Path) -> None:
    slow = added(10, retry=36_000)
    change: Line = (2_000, A, "updated", JOB | {"retry": 2, "reason": "client"})
    taken: Line = (3_000, A, "delivered", {"client": "w"})
    assert kinds_of(audit_of(tmp_path, [*slow, taken])) == {}
    audit = audit_of(tmp_path, [*slow, change, taken])
    assert kinds_of(audit) == {"not-requeued": None}
    assert audit.jobs[ID]["retry"] == 2
    # Also if it was lowered when a worker had it, at a node that was told.
    copied: Line = (9, B, "copied", JOB | {"retry": 36_000, "peer": NODES[A]})
    told: Line = (4_000, B, "updated", JOB | {"retry": 2, "reason": "peer", "peer": NODES[A]})
    assert kinds_of(audit_of(tmp_path, [copied, *slow, taken, told])) == {"not-requeued": None}


def test_the_time_to_live_that_is_left_counts_from_the_change(tmp_path: Path) -> None:
    taken: Line = (3_000, A, "delivered", {"client": "w"})
    longer: Line = (4_000, A, "updated", JOB | {"ttl": 9, "reason": "client"})
    assert kinds_of(audit_of(tmp_path, [*added(10), taken])) == {"not-requeued": None}
    audit = audit_of(tmp_path, [*added(10), taken, longer])
    assert kinds_of(audit) == {"expired-unacknowledged": None}
    # A copy that another node gets later has less time to live, and changes nothing.
    given: Line = (8_000_000, B, "imported", JOB | {"ttl": 60_000, "peer": NODES[A]})
    assert audit_of(tmp_path, [*added(10), given]).jobs[ID]["ttl"] == FACTS["ttl"]


def test_facts_are_the_newest_however_their_lines_come_together() -> None:
    rng = random.Random(4)
    lines: list[tuple[str, Line]] = []
    for number in range(40):
        id = f"{ID[:-4]}{number:04}"
        for at in rng.sample(range(1, 900), 7):
            kind = rng.choice(["added", "copied", "imported", "updated", "delivered", "paused"])
            more: dict[str, Any] = {"queue": rng.choice("pqr")}
            if kind == "paused":
                more |= {"until": START + rng.randrange(9000), "reason": "nack"}
            elif kind != "delivered":
                more |= JOB | {name: rng.randrange(9) for name in ("retry", "delay", "ttl")}
                more |= {"priority": rng.randrange(8)} if rng.random() < 0.5 else {}
                more |= {"reason": "client"} if kind == "updated" else {}
            lines.append((id, (at, rng.randrange(3), kind, more)))
    whole = _jobs(lines)
    for _ in range(20):
        rng.shuffle(lines)
        assert _jobs(lines, rng) == whole


def _jobs(lines: list[tuple[str, Line]], rng: random.Random | None = None) -> list[dict[str, Any]]:
    cuts = sorted(rng.choices(range(1, len(lines)), k=5)) if rng else []
    tables: list[pa.Table] = []
    for start, end in zip([0, *cuts], [*cuts, len(lines)], strict=True):
        if start < end:
            text = "".join(text_of(line, id) for id, line in lines[start:end])
            tables.append(_read(text))
    while len(tables) > 1:
        tables[:2] = [fold(pa.concat_tables(tables[:2]))]
    rows: list[dict[str, Any]] = jobs_of(tables[0], NODES).sort_by("id").to_pylist()
    return rows


def _read(text: str) -> pa.Table:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / f"events-{NODES[0][:8]}-1-1.jsonl"
        path.write_text(text)
        place = location(path)
        return read([Piece(place, 0, place.size())], NODES)[0]


# ---- queues -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("old", "new"), [("aa-from", "zz-to"), ("zz-from", "aa-to")])
def test_a_job_is_in_the_queue_that_it_was_moved_to(tmp_path: Path, old: str, new: str) -> None:
    before = [(at, node, kind, more | {"queue": old}) for at, node, kind, more in added(10)]
    moved: list[Line] = [
        (9, B, "copied", JOB | {"queue": old, "peer": NODES[A]}),
        (900, A, "dequeued", {"reason": "command", "queue": old}),
        (900, A, "updated", JOB | {"reason": "client", "queue": new}),
        (902, B, "updated", JOB | {"reason": "peer", "queue": new, "peer": NODES[A]}),
        (903, A, "delivered", {"client": "w", "queue": new}),
    ]
    audit = audit_of(tmp_path, [*before, *moved])
    assert audit.jobs[ID]["queue"] == new
    assert [finding.queue for finding in audit.findings] == [new]
    # A holder that has not heard of it, or does not have the job, says something else.
    late: list[Line] = [
        (2_000, C, "acked", {"reason": "client", "client": "w", "queue": None}),
        (2_001, B, "acked", {"reason": "peer", "queue": old}),
    ]
    assert audit_of(tmp_path, [*before, *moved, *late]).jobs[ID]["queue"] == new


# ---- DELJOB -------------------------------------------------------------------------------------


def _copies(*nodes: int, at: int = 9) -> list[Line]:
    return [(at, node, "copied", JOB | {"copies": 3, "peer": NODES[A]}) for node in nodes]


def test_a_job_that_is_deleted_where_it_was_a_copy_is_still_where_it_was(tmp_path: Path) -> None:
    gone: Line = (500, C, "deleted", {"reason": "command"})
    lines = [*_copies(B, C), *added(10, copies=3), gone]
    audit = audit_of(tmp_path, lines, Rules(waiting=3600))
    assert kinds_of(audit) == {"waiting": None}
    assert audit.jobs[ID]["ended"] is None
    # The node that had it in its queue was asked, too, and no other node queues it.
    here: Line = (600, A, "deleted", {"reason": "command"})
    assert kinds_of(audit_of(tmp_path, [*lines, here])) == {"never-delivered": None}
    everywhere: Line = (700, B, "deleted", {"reason": "command"})
    audit = audit_of(tmp_path, [*lines, here, everywhere])
    assert kinds_of(audit) == {}
    assert audit.jobs[ID]["ended"] == "deleted"
    told: Line = (601, B, "deleted", {"reason": "peer", "peer": NODES[A]})
    assert kinds_of(audit_of(tmp_path, [*lines, here, told])) == {}


def test_a_job_that_was_deleted_at_one_node_comes_back_at_another_after_its_retry(
    tmp_path: Path,
) -> None:
    gone: Line = (500, A, "deleted", {"reason": "command"})
    for retry, found in ((36_000, {}), (3_600, {"never-delivered": None})):
        lines = [*_copies(B), *added(10, copies=2, retry=retry), gone]
        for line in lines:
            line[3].update({"retry": retry} if "retry" in line[3] else {})
        assert kinds_of(audit_of(tmp_path, lines)) == found


def test_deleting_a_delivered_job_at_one_node_does_not_end_it(tmp_path: Path) -> None:
    taken: Line = (300, A, "delivered", {"client": "w"})
    gone: Line = (500, A, "deleted", {"reason": "command"})
    lines = [*_copies(B, C), *added(10, copies=3), taken, gone]
    assert kinds_of(audit_of(tmp_path, lines)) == {"not-requeued": None}
    others: list[Line] = [(501 + node, node, "deleted", {"reason": "command"}) for node in (B, C)]
    assert kinds_of(audit_of(tmp_path, [*lines, *others])) == {}
