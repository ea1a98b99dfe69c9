"""What append-only files say about jobs that were never delivered."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from disque_spark.append_only import find_files
from disque_spark.audit.classify import Finding
from disque_spark.audit.engine import LocalEngine
from disque_spark.audit.findings import FINDING_SCHEMA, as_batch
from disque_spark.audit.held import (
    TABLE_SCHEMA,
    Tables,
    Target,
    are_all,
    held_in,
    node_of_aof,
    with_ends,
    with_held_jobs,
    write_held,
)
from disque_spark.audit.judging import WAITS
from disque_spark.audit.result import Result
from disque_spark.audit.rules import Rules
from disque_spark.audit.run import audit
from disque_spark.files import Location, location
from disque_spark.parquet import write_file
from disque_trio.aof.format import AofError
from disque_trio.protocol.serialjob import JobWriter, deljob, loadjob

A, B = "a" * 40, "b" * 40
END = 1_900_000_000_000  # ms
LATER = END // 1000 + 60
SHOWN = ["job", "node", "logged", "ended"]


def job_id(number: int) -> str:
    return f"D-{A[:8]}-{number:024d}-05a1"


def job(number: int, expires: int = LATER) -> bytes:
    """Return the record of a job."""
    nodes = A.encode()
    ctime = 1_700_000_000_000_000_007
    id = job_id(number).encode()
    return loadjob(
        JobWriter().encode(id, 2, 0, 1, expires, ctime, 3, 60, 1, 2, b"q", b"body", nodes)
    )


def aof(directory: Path, *records: bytes, node: str = "") -> Location:
    directory.mkdir(exist_ok=True)
    path = directory / "disque.aof"
    path.write_bytes(b"".join(records))
    if node:
        lines = [f"{B} 127.0.0.1:1 master - 0 0 0 connected"] if node != B else []
        lines.append(f"{node} 127.0.0.1:2 myself - 0 0 0 connected")
        (directory / "nodes.conf").write_text("\n".join(lines) + "\n")
    return location(path)


def jobs_in(path: Location) -> list[str]:
    return [row["job"] for batch in held_in(path) for row in batch.to_pylist()]


def never(number: int, reason: str | None = None, kind: str = "never-delivered") -> Finding:
    return Finding(kind, reason, job_id(number), "q", END - 5000, [A], "")


def test_a_file_has_what_was_not_deleted(tmp_path: Path) -> None:
    path = aof(tmp_path, job(1), job(2), deljob(job_id(1).encode()), job(3), node=A)
    (batch,) = held_in(path)
    rows = batch.to_pylist()
    assert [row["job"] for row in rows] == [job_id(2), job_id(3)]
    first = rows[0]
    assert (first["queue"], first["node"], first["file"]) == ("q", A, str(path))
    assert (first["state"], first["retry"], first["delay"]) == ("queued", 60, 3)
    assert (first["nacks"], first["additional"], first["repl"]) == (1, 2, 1)
    assert first["expires"].timestamp() == LATER


def test_a_file_that_a_crash_cut_off_counts_up_to_there(tmp_path: Path) -> None:
    for cut in (1, 30, len(job(2)) - 1):
        assert jobs_in(aof(tmp_path, job(1), job(2)[:cut])) == [job_id(1)]


def test_a_damaged_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(AofError):
        jobs_in(aof(tmp_path, job(1), b"*1\r\n$7\r\nNONSENS\r\n", job(2)))


def test_an_empty_file_holds_nothing(tmp_path: Path) -> None:
    assert list(held_in(aof(tmp_path))) == []


def test_the_files_beside_it_tell_whose_file_it_is(tmp_path: Path) -> None:
    assert node_of_aof(aof(tmp_path / "a", node=A)) == A
    assert node_of_aof(aof(tmp_path / "b")) is None


def test_all_files_are_there_if_each_node_has_one(tmp_path: Path) -> None:
    one = aof(tmp_path / "a", node=A)
    other = aof(tmp_path / "b", node=B)
    strange = aof(tmp_path / "c")
    assert are_all([one, other], [A, B])
    assert not are_all([one], [A, B])
    assert not are_all([one, one], [A, B])
    assert are_all([one, strange], [A, B])
    assert not are_all([strange], [A, B])


def test_a_path_without_files_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        find_files([str(tmp_path)])


def rows_in(*files: Location) -> pa.Table:
    return pa.Table.from_batches([batch for path in files for batch in held_in(path)])


def known(*numbers: int) -> pa.Table:
    rows = [{"id": job_id(number), "ended": "acked"} for number in numbers]
    return pa.Table.from_pylist(rows, pa.schema([("id", pa.string()), ("ended", pa.string())]))


def test_the_table_says_which_jobs_the_log_does_not_know(tmp_path: Path) -> None:
    files = [aof(tmp_path / "a", job(1), job(2), node=A), aof(tmp_path / "b", job(2))]
    table = with_ends(rows_in(*files), known(2, 3))
    assert table.schema == TABLE_SCHEMA
    assert [tuple(row.values()) for row in table.select(SHOWN).to_pylist()] == [
        (job_id(1), A, False, None),
        (job_id(2), A, True, "acked"),
        (job_id(2), None, True, "acked"),
    ]


FOUND = (
    never(1),
    never(2, "log-gap"),
    never(3),
    never(4),
    never(5, "log-gap"),
    never(1, None, "poison"),
    never(1, None, "not-requeued"),
    never(2, "log-gap", "not-requeued"),
    Finding("clock-skew", None, None, None, END, [A, B], "apart"),
)


def reasons(lost: str | None) -> dict[tuple[str, str | None], str | None]:
    return {
        ("never-delivered", job_id(1)): "held",
        ("never-delivered", job_id(2)): "held",
        ("never-delivered", job_id(3)): lost,
        ("never-delivered", job_id(4)): lost,
        ("never-delivered", job_id(5)): "log-gap",
        ("poison", job_id(1)): None,
        ("not-requeued", job_id(1)): "held",
        ("not-requeued", job_id(2)): "log-gap",
        ("clock-skew", None): None,
    }


@pytest.mark.parametrize("all_nodes", [True, False])
def test_a_job_that_was_never_delivered_waits_or_is_lost(tmp_path: Path, all_nodes: bool) -> None:
    files = [aof(tmp_path / "a", job(1), job(2), job(4, END // 1000)), aof(tmp_path / "b", job(1))]
    table = with_ends(rows_in(*files), known(1, 2, 3, 4))
    findings = pa.Table.from_batches([as_batch(FOUND)])
    result = with_held_jobs(findings, table, END, all_nodes)
    assert result.schema == FINDING_SCHEMA
    found = {(row["kind"], row["job"]): row["reason"] for row in result.to_pylist()}
    assert found == reasons("lost" if all_nodes else None)


def test_no_log_is_needed_to_decide_about_what_a_file_decides(tmp_path: Path) -> None:
    detail = "as planted; the log of n2 would decide"
    waits = never(1, "log-gap")._replace(detail=detail, would_decide=["n2"])
    open = never(2, "log-gap")._replace(detail=detail, would_decide=["n2"])
    table = with_ends(rows_in(aof(tmp_path, job(1))), known())
    findings = pa.Table.from_batches([as_batch([waits, open])])
    rows = with_held_jobs(findings, table, END, True).to_pylist()
    assert [(row["detail"], row["would_decide"]) for row in rows] == [
        ("as planted", []),
        (detail, ["n2"]),
    ]


def test_a_job_that_waits_is_lost_if_no_node_has_it(tmp_path: Path) -> None:
    table = with_ends(rows_in(aof(tmp_path, job(1), job(4))), known(1, 2, 3, 4, 5))
    some = [never(number, kind=WAITS) for number in (1, 2)]
    some += [never(3, "restart", WAITS), never(4, None, "waiting"), never(5, None, "waiting")]
    some.append(never(6, None, WAITS)._replace(detail="delivered once"))
    findings = pa.Table.from_batches([as_batch(some)])

    def found(all_nodes: bool) -> set[tuple[str, str | None, str]]:
        rows = with_held_jobs(findings, table, END, all_nodes).to_pylist()
        return {(row["kind"], row["reason"], row["job"]) for row in rows}

    assert found(all_nodes=False) == {
        ("waiting", "held", job_id(4)),
        ("waiting", None, job_id(5)),
    }
    assert found(all_nodes=True) == {
        ("never-delivered", "lost", job_id(2)),
        ("never-delivered", "lost", job_id(3)),
        ("waiting", "held", job_id(4)),
        ("never-delivered", "lost", job_id(5)),
        ("never-acknowledged", "lost", job_id(6)),
    }


def test_an_audit_with_files_tells_what_waits_from_what_is_lost(tmp_path: Path) -> None:
    """Two jobs are in the queue of a node, of which its file has one."""
    lines: list[dict[str, Any]] = [{"event": "started"}]
    for number in (1, 2):
        known = {"size": 4, "repl": 1, "copies": 1, "retry": 60, "ttl": 999_999, "delay": 0}
        lines.append({"event": "added", "id": job_id(number), "queue": "q"} | known)
        lines.append({"event": "queued", "reason": "add", "id": job_id(number), "queue": "q"})
    (tmp_path / "log").mkdir()
    start = END - 3_600_000
    times = [*range(start, start + len(lines)), END]
    texts = [
        json.dumps({"time": time, "node": A} | line)
        for time, line in zip(times, [*lines, {"event": "stopped"}], strict=True)
    ]
    (tmp_path / "log" / f"events-{A[:8]}-{start}-1.jsonl").write_text("\n".join(texts) + "\n")
    aof(tmp_path / "node", job(1), node=A)

    def audited(*aofs: str, rules: Rules | None = None) -> Result:
        logs = [str(tmp_path / "log")]
        return audit(LocalEngine(1), logs, tmp_path / "audit", rules, aofs=aofs)

    result = audited()
    assert (result.waiting.jobs, dict(result.findings), result.serious) == (2, {}, 0)
    assert result.waiting.queue == "q"
    assert result.waiting.since == start + 2
    result = audited(str(tmp_path / "node"))
    assert dict(result.reasons) == {("never-delivered", "lost"): 1}
    assert result.fails()
    assert len(list((tmp_path / "audit").rglob("findings/**/*.parquet"))) > 0
    result = audited(str(tmp_path / "node"), rules=Rules(waiting=60))
    assert dict(result.reasons) == {("never-delivered", "lost"): 1, ("waiting", "held"): 1}
    assert dict(audited().findings) == {}


@pytest.mark.parametrize("threads", [1, 3])
def test_both_tables_are_written_in_buckets_of_jobs(tmp_path: Path, threads: int) -> None:
    files = [aof(tmp_path / "a", job(1), job(2), job(4, END // 1000)), aof(tmp_path / "b", job(1))]
    jobs, findings = location(tmp_path / "jobs.parquet"), location(tmp_path / "found.parquet")
    write_file(jobs, known(1, 3, 4))
    write_file(findings, pa.Table.from_batches([as_batch(FOUND)]))
    tables = Tables([jobs], [("2030-03-17", findings)], 4)
    target = Target(location(tmp_path / "held"), location(tmp_path / "findings"), "000002-x")
    done = write_held(LocalEngine(threads), files, tables, target, END, True)
    assert (done.jobs, done.unlogged) == (3, 1)
    held = pa.concat_tables(pq.read_table(tmp_path / "held" / name) for name in done.files)
    ids = [job_id(number) for number in (1, 1, 2, 4)]
    assert sorted(held.column("job").to_pylist()) == ids
    names = [tmp_path / "findings" / "day=2030-03-17" / name for name in done.found["2030-03-17"]]
    found = [row for path in names for row in pq.ParquetFile(path).read().to_pylist()]
    assert {(row["kind"], row["job"]): row["reason"] for row in found} == reasons("lost")
    assert done.counts["never-delivered held"] == 2
    assert done.counts["clock-skew "] == 1
    assert sum(done.counts.values()) == len(FOUND)
