"""The engine of this process: tasks, steps, and rows between them in memory or in files."""

import os
import random
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from disque_spark.audit import engine as engines
from disque_spark.audit.engine import BUCKET, LocalEngine, Shuffle, Step, Tasks
from disque_spark.audit.hashes import hashes_of
from disque_spark.options import batch_of
from packages.spark.tests.support.planted_log import generate
from packages.spark.tests.support.written_logs import found

WORDS = pa.schema([(BUCKET, pa.int32()), ("word", pa.string())])
COUNTS = pa.schema([("word", pa.string()), ("count", pa.int64())])
BUCKETS = 5


def words_of(number: int) -> list[str]:
    rng = random.Random(number)
    return [f"w{rng.randrange(40)}" for _ in range(rng.randrange(60))]


def task(number: int) -> Iterator[pa.RecordBatch]:
    words = words_of(number)
    for start in range(0, len(words), 7):
        some = words[start : start + 7]
        yield batch_of([(sum(word.encode()) % BUCKETS, word) for word in some], WORDS)


def merge(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    counts = Counter(word for batch in batches for word in batch.column("word").to_pylist())
    yield batch_of(sorted(counts.items()), COUNTS)


@pytest.fixture(params=[1, 3])
def local(request: pytest.FixtureRequest) -> LocalEngine:
    return LocalEngine(request.param)


def test_tasks_come_in_order(local: LocalEngine) -> None:
    rows = local.rows(Tasks(20, task, WORDS))
    assert rows.schema == WORDS
    assert rows.column("word").to_pylist() == [w for n in range(20) for w in words_of(n)]
    assert local.rows(Tasks(0, task, WORDS)).num_rows == 0


@pytest.mark.parametrize("spill", [1, 200, 1 << 30])
def test_a_step_has_all_rows_of_a_bucket(
    local: LocalEngine, spill: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(engines, "SPILL_BYTES", spill)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    every = Counter(word for number in range(30) for word in words_of(number))
    tasks = Tasks(10, task, WORDS).plus(Tasks(20, lambda number: task(number + 10), WORDS))
    rows = local.rows(tasks, Step(BUCKETS, merge, COUNTS)).to_pylist()
    assert {row["word"]: row["count"] for row in rows} == every
    assert len(rows) == len(every)
    assert not os.listdir(tmp_path)


def test_steps_follow_each_other(local: LocalEngine) -> None:
    bucketed = pa.schema([(BUCKET, pa.int32()), *COUNTS])

    def to_one(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in merge(batches):
            yield batch_of([(1, *row.values()) for row in batch.to_pylist()], bucketed)

    def total(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        counts = [row["count"] for batch in batches for row in batch.to_pylist()]
        yield batch_of([("all", sum(counts))], COUNTS)

    rows = local.rows(
        Tasks(30, task, WORDS), Step(BUCKETS, to_one, bucketed), Step(2, total, COUNTS)
    )
    assert rows.to_pylist() == [{"word": "all", "count": sum(len(words_of(n)) for n in range(30))}]
    assert local.share() is None


def test_what_a_task_raises_is_raised_and_nothing_stays(
    local: LocalEngine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(engines, "SPILL_BYTES", 1)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def fails(number: int) -> Iterator[pa.RecordBatch]:
        yield from task(number)
        if number == 7:
            raise OSError("no disk")

    with pytest.raises(OSError, match="no disk"):
        local.rows(Tasks(20, fails, WORDS), Step(BUCKETS, merge, COUNTS))
    assert not os.listdir(tmp_path)
    assert local.rows(Tasks(1, task, WORDS)).num_rows == len(words_of(0))


def test_what_does_not_fit_is_in_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(engines, "SPILL_BYTES", 1000)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with Shuffle(BUCKETS, WORDS) as shuffle:
        for number in range(30):
            for batch in task(number):
                shuffle.add(batch)
        assert len(list(tmp_path.glob("*/*"))) == BUCKETS
        held = sum(batch.nbytes for held in shuffle._held for batch in held)
        assert held <= 1000
        assert shuffle.found() == list(range(BUCKETS))
        rows = [row for batch in shuffle.take(2) for row in batch.to_pylist()]
        assert {row[BUCKET] for row in rows} == {2}
        assert not list(shuffle.take(2))


def test_hashes_of_strings_depend_on_nothing_else() -> None:
    texts = ["", "a", "b", "ab", "ba", "D-" + "a" * 38, "D-" + "a" * 37 + "b", "é" * 9, "\0", "a\0"]
    array = pa.array(texts)
    hashes = hashes_of(array).tolist()
    assert len(set(hashes)) == len(texts)
    assert hashes_of(array.slice(3, 4)).tolist() == hashes[3:7]
    assert [hashes_of(pa.array([text])).tolist()[0] for text in texts] == hashes
    many = hashes_of(pa.array([f"D-{number:038d}" for number in range(20_000)]))
    counts = np.bincount((many % np.uint64(16)).astype(np.int64), minlength=16)
    assert counts.min() > 1000
    assert not len(hashes_of(pa.array([], pa.string())))


HIDING = """
import importlib.abc, sys
class Hidden(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in ("pyspark", "py4j", "pandas"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Hidden())
from disque_spark.pipeline import main
sys.exit(main(sys.argv[1:]))
"""


def run(*words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", HIDING, *words], capture_output=True, text=True, check=False
    )


def test_the_command_needs_neither_spark_nor_pandas(tmp_path: Path) -> None:
    planted = generate(tmp_path / "log", 12_000, anomalies=3, chunk=300, seed=7)
    log, output = str(tmp_path / "log"), str(tmp_path / "audit")
    done = run("audit", log, "--output", output, "--check")
    assert (done.returncode, done.stderr) == (3, "")
    assert found(tmp_path / "audit") == planted
    page = tmp_path / "page.html"
    words = ["--output", str(tmp_path / "watched"), "--html", str(page), "--looks", "1"]
    done = run("watch", log, *words)
    assert (done.returncode, done.stderr) == (0, "")
    assert page.read_text().startswith("<!doctype html>")
    assert found(tmp_path / "watched") == planted
    done = run("audit", log, "--output", output, "--engine", "spark")
    assert done.returncode == 1
    assert "pip install" in done.stderr
