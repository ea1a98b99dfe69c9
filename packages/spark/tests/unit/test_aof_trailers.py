"""Append-only files with jobs that have trailers, as the data source reads them."""

from pathlib import Path

import pyarrow as pa

from disque_spark.append_only import live_records
from disque_spark.datasources.aof import _Batch
from disque_trio.aof.format import deljob, loadjob
from tests.support.trailers import ID, full_trailer, job_with

FULL = full_trailer().pack()
NODE = [b"a" * 40]


def live(path: Path, *records: bytes) -> list[int]:
    """Return the offsets of the records that count."""
    path.write_bytes(b"".join(records))
    with path.open("rb", buffering=0) as file:
        return [offset for offset, _, _ in live_records(file)]


def test_a_later_record_with_a_trailer_counts(tmp_path: Path) -> None:
    first = loadjob(job_with(FULL, 1 << 31, NODE))
    second = loadjob(job_with(b"\0\0\0\0\1", 1 << 31, NODE, b"new"))
    assert live(tmp_path / "aof", first, second) == [len(first)]
    assert live(tmp_path / "aof", first, second, deljob(ID)) == []


def test_a_body_is_read_without_the_trailer() -> None:
    names = ["file", "offset", "record", "id", "queue", "state", "repl", "expires", "ctime"]
    names += ["delay", "retry", "nacks", "deliveries", "nodes", "body", "error"]
    batch = _Batch(pa.schema([(name, pa.string()) for name in names]), "aof")
    batch.job(0, job_with(FULL, 1 << 31, NODE, b"the body"))
    assert batch.rows[0][14] == b"the body"
