"""The audit of event logs: what is planted in a log is found, nothing else, in one run or many."""

import gzip
import json
import random
import shutil
from collections.abc import Collection
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import Row, SparkSession

from disque_trio.spark.audit.jobs import FACTS, NAMES, fold, jobs_of
from disque_trio.spark.audit.partial_jobs import Seen, cut, read
from disque_trio.spark.audit.queue_minutes import COUNTS, minutes_of, sums_of
from disque_trio.spark.audit.rules import Rules
from disque_trio.spark.audit.run import Result, audit
from disque_trio.spark.audit.store import Store, StoreError
from disque_trio.spark.audit.trace import CODE_BITS, CODES, TIME_SHIFT
from disque_trio.spark.audit.unread import AuditError
from disque_trio.spark.files import location
from tests.support.planted_log import NODES, START, Key, generate

pytestmark = pytest.mark.timeout(400)

A, B, C = NODES


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[Key, set[str]]]:
    """A log of some segments of each node, and what is planted in it."""
    directory = tmp_path_factory.mktemp("small") / "log"
    return directory, generate(directory, 12_000, anomalies=3, chunk=300, seed=7)


@pytest.fixture(scope="module")
def whole(
    spark: SparkSession,
    small: tuple[Path, dict[Key, set[str]]],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """The audit of that log in one go."""
    output = tmp_path_factory.mktemp("whole") / "audit"
    audit(spark, [str(small[0])], output)
    return output


class Lines:
    """A log that is written by hand.

    Attributes:
        at: ms since the epoch, of the next event.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.at = START
        self._lines: dict[str, list[str]] = {}
        directory.mkdir(parents=True, exist_ok=True)

    def say(
        self, node: str, event: str, job: str | None = "j", after: int = 10, **more: object
    ) -> None:
        self.at += after
        line = {"time": self.at, "node": node, "event": event, "id": job, "queue": "q", **more}
        kept = {name: value for name, value in line.items() if value is not None}
        self._lines.setdefault(node, []).append(json.dumps(kept) + "\n")

    def add(self, node: str, job: str, **more: object) -> None:
        facts = {"size": 5, "repl": 1, "retry": 30, "ttl": 3600, "delay": 0, **more}
        self.say(node, "added", job, **facts)
        self.say(node, "queued", job, reason="add")

    def stop(self) -> None:
        """All nodes say that their logs are complete up to here."""
        for node in NODES:
            self.say(node, "stopped", None, after=0)

    def close(self, number: int = 0) -> None:
        """Write the segments."""
        for node, lines in self._lines.items():
            name = f"events-{node[:8]}-{self.at:013d}-{number}.jsonl"
            (self.directory / name).write_text("".join(lines))
        self._lines = {}


def table(spark: SparkSession, output: Path, name: str) -> list[Row]:
    """The rows of a table, in an order of their own; of jobs without the part they are in."""
    rows = spark.read.parquet(str(output / "current" / name))
    return sorted(rows.drop("part", "day").collect(), key=str)


def found(spark: SparkSession, output: Path) -> dict[Key, set[str]]:
    kinds: dict[Key, set[str]] = {}
    for row in table(spark, output, "findings"):
        about = row["job"] or " ".join(row["nodes"])
        kinds.setdefault((row["kind"], row["reason"] or ""), set()).add(about)
    return kinds


def audited(spark: SparkSession, log: Lines, output: Path, rules: Rules | None = None) -> Result:
    log.close()
    return audit(spark, [str(log.directory)], output, rules)


def same(spark: SparkSession, one: Path, other: Path) -> None:
    for name in ("jobs", "queue_minutes", "findings"):
        assert table(spark, one, name) == table(spark, other, name), name


# ---- what is found ------------------------------------------------------------------------------


def test_all_that_is_planted_in_a_long_log_is_found_and_nothing_else(
    spark: SparkSession, tmp_path: Path
) -> None:
    planted = generate(tmp_path / "log", 60_000, chunk=3_000)
    result = audit(spark, [str(tmp_path / "log")], tmp_path / "audit")
    assert found(spark, tmp_path / "audit") == planted
    assert result.events > 60_000
    assert sum(result.findings.values()) == sum(map(len, planted.values()))


def test_nothing_is_found_in_the_log_of_a_cluster_that_is_well(
    spark: SparkSession, tmp_path: Path
) -> None:
    assert generate(tmp_path / "log", 5_000, anomalies=0, skew=0) == {}
    result = audit(spark, [str(tmp_path / "log")], tmp_path / "audit")
    assert not result.findings


def test_the_life_of_a_job_on_all_nodes_is_one_row(spark: SparkSession, tmp_path: Path) -> None:
    log = Lines(tmp_path / "log")
    facts = {"size": 77, "repl": 2, "retry": 30, "ttl": 3600, "delay": 0, "ctime": 1}
    log.say(A, "added", client="shop", priority=7, group="blue", **facts)
    log.say(B, "copied", peer=A, size=77, retry=30, ttl=3600)
    log.say(A, "replicated", copies=2)
    log.say(A, "queued", reason="add")
    log.say(A, "exported", peer=C)
    log.say(C, "imported", peer=A)
    log.say(C, "queued", reason="import")
    log.say(C, "delivered", after=200, client="worker")
    log.say(C, "nacked", nacks=1)
    log.say(C, "queued", after=0, reason="nack")
    log.say(C, "delivered", after=0, nacks=1)
    log.say(C, "acked", after=500, reason="client")
    log.say(A, "acked", reason="peer", peer=C)
    for node in NODES:
        log.say(node, "deleted", reason="collected")
    audited(spark, log, tmp_path / "audit")
    (job,) = table(spark, tmp_path / "audit", "jobs")
    facts = [job[name] for name in ("id", "queue", "size", "repl", "copies", "retry", "ended")]
    assert facts == ["j", "q", 77, 2, 2, 30, "acked"]
    assert (job["priority"], job["group"]) == (7, "blue")
    counts = [job[name] for name in ("deliveries", "requeues_nack", "requeues_retry", "nacks_said")]
    assert counts == [2, 1, 0, 1]
    assert (job["wait_ms"], job["processing_ms"]) == (230, 500)
    assert job["complete"]
    where = {name: job[name] for name in job.asDict() if name.endswith(("_on", "_from", "_to"))}
    assert where == {
        "added_on": [A],
        "copied_on": [B],
        "queued_on": [A, C],
        "delivered_on": [C],
        "acked_on": [A, C],
        "exported_from": [A],
        "imported_to": [C],
    }
    (minute,) = table(spark, tmp_path / "audit", "queue_minutes")
    shown = [minute[name] for name in ("added", "delivered", "acked", "nacked", "depth")]
    assert shown == [1, 2, 1, 1, 0]
    assert minute["most_in_a_second"] == 2
    assert (minute["wait_p50"], minute["processing_p99"], minute["nack_rate"]) == (230, 500, 0.5)


def test_a_job_is_young_until_the_log_goes_on_for_a_while(
    spark: SparkSession, tmp_path: Path
) -> None:
    log = Lines(tmp_path / "log")
    log.add(A, "lost")
    log.add(A, "late", delay=3600)
    log.say(A, "stopped", None, after=0)
    log.say(B, "dequeued", None, after=59_000)
    log.close()
    rules = Rules(settled=60)
    audit(spark, [str(log.directory)], tmp_path / "audit", rules)
    assert found(spark, tmp_path / "audit") == {}
    log.say(B, "dequeued", None, after=2_000)
    log.close(1)
    audit(spark, [str(log.directory)], tmp_path / "audit", rules)
    assert found(spark, tmp_path / "audit") == {("never-delivered", ""): {"lost"}}


def test_a_job_that_was_evicted_before_its_delivery_is_lost(
    spark: SparkSession, tmp_path: Path
) -> None:
    log = Lines(tmp_path / "log")
    log.add(A, "evicted")
    log.say(A, "evicted", "evicted")
    log.add(A, "deleted")
    log.say(A, "deleted", "deleted", reason="command")
    log.add(A, "acked")
    log.say(A, "acked", "acked", reason="client")
    log.say(A, "dequeued", None, after=100_000)
    audited(spark, log, tmp_path / "audit")
    assert found(spark, tmp_path / "audit") == {
        ("never-delivered", ""): {"evicted"},
        ("acknowledged-unseen", ""): {"acked"},
    }


def test_nodes_that_do_not_hear_of_each_other_both_retry(
    spark: SparkSession, tmp_path: Path
) -> None:
    log = Lines(tmp_path / "log")
    log.add(A, "split")
    log.say(A, "delivered", "split")
    log.say(A, "queued", "split", after=30_000, reason="retry")
    log.say(A, "delivered", "split")
    log.say(B, "queued", "split", after=400, reason="retry")
    log.say(B, "delivered", "split")
    log.say(B, "acked", "split", reason="client")
    audited(spark, log, tmp_path / "audit")
    assert found(spark, tmp_path / "audit") == {
        ("delivered-twice", "retry"): {"split"},
        ("delivered-twice", "partition"): {"split"},
    }


def test_other_rules_make_other_findings_of_the_same_log(
    spark: SparkSession, tmp_path: Path
) -> None:
    log = Lines(tmp_path / "log")
    log.add(A, "j")
    for n in range(2):
        log.say(A, "delivered", nacks=n)
        log.say(A, "nacked", nacks=n + 1)
        log.say(A, "queued", reason="nack")
    log.close()
    first = audit(spark, [str(log.directory)], tmp_path / "audit", Rules(poison=2))
    second = audit(spark, [str(log.directory)], tmp_path / "audit", Rules(poison=1))
    assert (first.findings["poison"], second.findings["poison"]) == (0, 1)


# ---- several runs -------------------------------------------------------------------------------


def test_runs_over_more_and_more_segments_come_to_the_same_as_one_run(
    spark: SparkSession, small: tuple[Path, dict[Key, set[str]]], whole: Path, tmp_path: Path
) -> None:
    log, planted = small
    segments = sorted(log.iterdir(), key=lambda path: path.name.split("-")[2:])
    growing = tmp_path / "log"
    growing.mkdir()
    events = 0
    for start in range(0, len(segments), 5):
        for segment in segments[start : start + 5]:
            shutil.copy(segment, growing)
        events += audit(spark, [str(growing)], tmp_path / "audit").events
    same(spark, tmp_path / "audit", whole)
    assert events == Store(whole).manifest.events
    assert found(spark, whole) == planted


def test_the_log_of_a_node_may_come_late(
    spark: SparkSession, small: tuple[Path, dict[Key, set[str]]], whole: Path, tmp_path: Path
) -> None:
    log, _ = small
    order = (B, A, C)  # nodes are not numbered as in the audit that had all
    for node in order:
        audit(spark, [str(log / f"events-{node[:8]}-*")], tmp_path / "audit")
    (jobs, other) = (table(spark, path, "jobs") for path in (tmp_path / "audit", whole))
    assert [row["id"] for row in jobs] == [row["id"] for row in other]
    for name in ("deliveries", "wait_ms", "processing_ms", "ended", "acked_at", "first_queued"):
        assert [row[name] for row in jobs] == [row[name] for row in other], name
    late = table(spark, tmp_path / "audit", "queue_minutes")
    assert late == table(spark, whole, "queue_minutes")
    assert found(spark, tmp_path / "audit").keys() == found(spark, whole).keys()


def test_a_segment_that_was_read_is_not_read_again_not_even_when_it_was_compressed(
    spark: SparkSession, small: tuple[Path, dict[Key, set[str]]], whole: Path, tmp_path: Path
) -> None:
    before = Store(whole).manifest
    packed = tmp_path / "packed"
    packed.mkdir()
    for segment in small[0].iterdir():
        (packed / f"{segment.name}.gz").write_bytes(gzip.compress(segment.read_bytes()))
    result = audit(spark, [str(packed)], whole)
    assert (result.segments, result.events) == (0, 0)
    assert Store(whole).manifest == before


@pytest.mark.parametrize("moment", ["before the findings", "before it is current"])
def test_a_run_that_dies_leaves_the_tables_of_the_one_before(
    spark: SparkSession,
    small: tuple[Path, dict[Key, set[str]]],
    whole: Path,
    tmp_path: Path,
    moment: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log, _ = small
    output = tmp_path / "audit"
    audit(spark, [str(log / "events-aaaaaaaa-*")], output)
    before = [table(spark, output, name) for name in ("jobs", "queue_minutes", "findings")]

    class Died(Exception):
        pass

    def die(*args: object, **options: object) -> None:
        raise Died

    with monkeypatch.context() as patch:
        if moment == "before the findings":
            patch.setattr("disque_trio.spark.audit.judging.clocks_by_id", die)
        else:
            patch.setattr(Path, "symlink_to", die)
        with pytest.raises(Died):
            audit(spark, [str(log)], output)
    assert before == [table(spark, output, name) for name in ("jobs", "queue_minutes", "findings")]
    audit(spark, [str(log)], output)
    same(spark, output, whole)


def test_two_audits_do_not_write_to_one_directory(spark: SparkSession, tmp_path: Path) -> None:
    log = Lines(tmp_path / "log")
    log.add(A, "j")
    log.close()
    with Store(tmp_path / "audit").locked(), pytest.raises(StoreError):
        audit(spark, [str(log.directory)], tmp_path / "audit")


# ---- logs that are not as they should be -------------------------------------------------------


def test_an_empty_log_gives_empty_tables_that_later_runs_fill(
    spark: SparkSession, tmp_path: Path
) -> None:
    log = Lines(tmp_path / "log")
    (log.directory / f"events-{A[:8]}-{START:013d}-0.jsonl").touch()
    result = audit(spark, [str(log.directory)], tmp_path / "audit")
    assert (result.segments, result.events, result.jobs) == (1, 0, 0)
    assert not result.findings
    log.add(A, "j")
    log.close(1)
    assert audit(spark, [str(log.directory)], tmp_path / "audit").jobs == 1
    assert len(table(spark, tmp_path / "audit", "queue_minutes")) == 1


def test_segments_that_are_not_closed_are_left_for_a_later_run(
    spark: SparkSession, tmp_path: Path
) -> None:
    log = Lines(tmp_path / "log")
    log.add(A, "done")
    log.close()
    log.add(B, "open")
    log.close(1)
    (closed,) = log.directory.glob("events-bbbbbbbb-*")
    opened = closed.with_name(closed.name + ".open")
    text = closed.read_text()
    opened.write_text(text[: len(text) // 2])
    closed.unlink()
    assert audit(spark, [str(log.directory)], tmp_path / "audit").jobs == 1
    opened.write_text(text)
    opened.rename(closed)
    assert audit(spark, [str(log.directory)], tmp_path / "audit").jobs == 2


def test_what_the_log_says_it_lost_and_what_nobody_knows_is_counted(
    spark: SparkSession, tmp_path: Path
) -> None:
    log = Lines(tmp_path / "log")
    log.add(A, "j")
    log.say(A, "dropped", None, count=17)
    log.say(A, "painted", "j", reason="blue")
    log.close()
    (segment,) = log.directory.iterdir()
    segment.write_text(segment.read_text() + '{"time": 1, "node": "aa\n')
    result = audit(spark, [str(log.directory)], tmp_path / "audit")
    assert (result.dropped, result.unknown, result.damaged, result.jobs) == (17, 1, 1, 1)


def test_a_segment_with_events_of_two_nodes_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    log = Lines(tmp_path / "log")
    log.add(A, "j")
    log.close()
    (segment,) = log.directory.iterdir()
    segment.write_text(segment.read_text() + segment.read_text().replace(A, B))
    with pytest.raises(AuditError):
        audit(spark, [str(log.directory)], tmp_path / "audit")
    assert Store(tmp_path / "audit").current is None


def test_segments_of_one_name_in_two_directories_are_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    for node in "ab":
        log = Lines(tmp_path / node)
        log.add(node * 40, f"job of {node}")
        log.close()
        (segment,) = log.directory.iterdir()
        segment.rename(log.directory / "log.jsonl")
    with pytest.raises(AuditError):
        audit(spark, [str(tmp_path / node / "log.jsonl") for node in "ab"], tmp_path / "audit")


def test_a_segment_that_was_still_being_copied_is_an_error_when_it_is_complete(
    spark: SparkSession, tmp_path: Path
) -> None:
    log = Lines(tmp_path / "log")
    log.add(A, "one")
    log.add(A, "two")
    log.close()
    (segment,) = log.directory.iterdir()
    whole = segment.read_text()
    segment.write_text("".join(whole.splitlines(keepends=True)[:2]))
    assert audit(spark, [str(log.directory)], tmp_path / "audit").jobs == 1
    segment.write_text(whole)
    with pytest.raises(AuditError):
        audit(spark, [str(log.directory)], tmp_path / "audit")


def test_a_directory_without_a_segment_is_an_error_and_links_are_followed(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "logs").mkdir()
    with pytest.raises(AuditError):
        audit(spark, [str(tmp_path / "logs")], tmp_path / "audit")
    log = Lines(tmp_path / "elsewhere")
    log.add(A, "j")
    log.close()
    (tmp_path / "logs" / "node").symlink_to(log.directory)
    (log.directory / "back").symlink_to(tmp_path / "logs")
    assert audit(spark, [str(tmp_path / "logs")], tmp_path / "audit").jobs == 1


def test_damaged_lines_are_counted_and_a_job_that_lacks_them_is_found_with_a_mark(
    spark: SparkSession, tmp_path: Path
) -> None:
    log = Lines(tmp_path / "log")
    log.say(A, "started", None)
    log.add(A, "torn")
    log.say(A, "delivered", "torn")
    log.say(A, "acked", "torn", reason="client")
    log.say(A, "dequeued", None)
    log.add(A, "whole")
    log.at += 100_000
    log.stop()
    log.close()
    (segment,) = log.directory.glob(f"events-{A[:8]}-*")
    lines = segment.read_bytes().splitlines(keepends=True)
    lines[3] = lines[3].replace(b"torn", b"to\xffn")
    lines[4] = lines[4].replace(b"torn", b"to\\ud800n")
    lines[3:3] = [b"[" * 100_000 + b"\n", b'{"time":1,"node":null}\n']
    segment.write_bytes(b"".join(lines))
    result = audit(spark, [str(log.directory)], tmp_path / "audit")
    assert (result.damaged, result.jobs) == (4, 2)
    assert found(spark, tmp_path / "audit") == {
        ("never-delivered", "log-gap"): {"torn"},
        ("never-delivered", ""): {"whole"},
    }


def test_a_compressed_segment_that_is_cut_off_is_an_error_that_names_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / f"events-{A[:8]}-{START:013d}-0.jsonl.gz"
    line = json.dumps({"time": START, "node": A, "event": "added", "id": "j"}) + "\n"
    path.write_bytes(gzip.compress(line.encode() * 1000)[:-20])
    with pytest.raises(AuditError, match=path.name):
        audit(spark, [str(tmp_path)], tmp_path / "audit")


def test_a_log_of_which_the_beginning_was_removed_makes_no_finding_without_a_mark(
    spark: SparkSession, tmp_path: Path
) -> None:
    log = Lines(tmp_path / "log")
    log.say(A, "started", None)
    log.say(A, "added", repl=2, retry=30, ttl=60, delay=0)
    log.at += 60_000
    log.say(A, "expired")
    log.say(B, "expired")  # it was delivered there, in a segment that is gone
    log.stop()
    audited(spark, log, tmp_path / "audit")
    assert found(spark, tmp_path / "audit") == {("expired-undelivered", "log-gap"): {"j"}}


def test_a_log_that_is_not_there_is_an_error(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        audit(spark, [str(tmp_path / "nowhere")], tmp_path / "audit")


# ---- parts of it, without Spark ----------------------------------------------------------------


def event(at: int, node: int, what: str) -> int:
    return at << TIME_SHIFT | node << CODE_BITS | CODES[what]


def rows(events: list[tuple[str, int]]) -> pa.Table:
    ids, numbers = zip(*events, strict=True)
    columns = {"id": list(ids), "queue": ["q"] * len(ids), "event": list(numbers)}
    return pa.table({**columns, **nothing(len(ids), columns)})


def nothing(count: int, known: Collection[str]) -> dict[str, pa.Array]:
    """The columns of events of which nothing is known."""
    types = dict.fromkeys(NAMES, pa.string()) | dict.fromkeys(FACTS, pa.int64())
    return {name: pa.nulls(count, type) for name, type in types.items() if name not in known}


def test_jobs_are_the_same_however_their_events_come_together() -> None:
    rng = random.Random(3)
    kinds = [what for what in CODES if what != "acked:"]
    events = [
        (f"job {job:03}", event(rng.randrange(1000), rng.randrange(3), rng.choice(kinds)))
        for job in range(60)
        for _ in range(rng.randrange(1, 9))
    ]
    expected = jobs_of(fold(rows(events)), NODES).sort_by("id")
    for _ in range(50):
        rng.shuffle(events)
        cuts = sorted(rng.choices(range(len(events) + 1), k=rng.randrange(9)))
        pieces = [
            fold(rows(events[start:end]))
            for start, end in zip([0, *cuts], [*cuts, len(events)], strict=True)
            if start < end
        ]
        whole = fold(pa.concat_tables([fold(pa.concat_tables(pieces[:2])), *pieces[2:]]))
        assert jobs_of(whole, NODES).sort_by("id").equals(expected)


def test_what_some_events_of_a_job_do_not_say_others_do() -> None:
    columns = {"id": ["j", "k", "j", "j"], "queue": [None, None, "q", None], "event": [3, 2, 1, 2]}
    columns |= {"retry": [None, None, 0, 7], "group": ["g", None, None, None]}
    j, k = fold(pa.table({**columns, **nothing(4, columns)})).to_pylist()
    assert (j["queue"], j["retry"], j["size"], j["trace"]) == ("q", 7, None, [1, 2, 3])
    assert (k["queue"], k["retry"], k["trace"]) == (None, None, [2])
    assert (j["group"], k["group"]) == ("g", None)


def test_slices_have_the_events_of_all_nodes_of_a_time(tmp_path: Path) -> None:
    generate(tmp_path, 6_000, anomalies=9, chunk=100)
    files = location(tmp_path).files()
    slices = cut(files, 1 << 18)
    assert sorted(piece.path for pieces in slices for piece in pieces) == list(map(str, files))
    ids: dict[str, int] = {}
    seen = Seen()
    for pieces in slices:
        partial, here, _ = read(pieces, NODES)
        seen = seen.plus(here)
        for job in partial.column("id").to_pylist():
            ids[job] = ids.get(job, 0) + 1
    assert seen.events == sum(file.read_bytes().count(b"\n") for file in files)
    assert len(slices) > 3
    assert sum(ids.values()) < len(ids) * 1.7  # most are in one slice only


def test_a_segment_that_is_longer_than_a_piece_is_read_once(tmp_path: Path) -> None:
    generate(tmp_path, 30_000, chunk=1 << 30)
    files = location(tmp_path).files()
    slices = cut(files, 3 << 20)
    assert len(slices) > 1
    seen = Seen()
    for pieces in slices:
        seen = seen.plus(read(pieces, NODES)[1])
    assert seen.events == sum(file.read_bytes().count(b"\n") for file in files)


def test_lines_that_have_no_time_that_can_be_are_no_events(tmp_path: Path) -> None:
    log = Lines(tmp_path)
    for time in (-1, 1 << 44, 9e18, "now", None):
        log.say(A, "added", "wrong", time=time)
    log.add(A, "right")
    log.close()
    (tmp_path / "events-empty.jsonl").write_text("\n\n")
    (slices,) = cut(location(tmp_path).files())
    partial, seen, _ = read(slices, NODES)
    assert (seen.events, partial.column("id").to_pylist()) == (2, ["right"])


def test_percentiles_are_those_of_numpy_and_counts_those_of_each_minute() -> None:
    rng = random.Random(5)
    queues = ["q", "r", None]
    keys = [(queue, minute * 60_000) for queue in queues for minute in range(4)]
    sums = [
        {"queue": queue, "minute": minute, **dict.fromkeys((*COUNTS, "change"), amount)}
        for queue, minute in keys
        for amount in (1, 2)
    ]
    times = [
        {"queue": queue, "minute": minute, "kind": kind, "ms": rng.randrange(1000)}
        for queue, minute in keys
        for kind in (0, 1)
        for _ in range(rng.randrange(9))
    ]
    rng.shuffle(times)
    schema = pa.schema([("queue", pa.string())])
    table = minutes_of(
        pa.Table.from_pylist(sums, pa.unify_schemas([schema, pa.Table.from_pylist(sums).schema])),
        pa.Table.from_pylist(times),
    )
    assert len(table) == len(keys)
    for row in table.to_pylist():
        assert {row[name] for name in COUNTS} == {3}
        for kind, name in enumerate(("wait", "processing")):
            ms = [
                time["ms"]
                for time in times
                if (time["queue"], time["minute"], time["kind"])
                == (row["queue"], row["minute"], kind)
            ]
            for share in (50, 95, 99):
                expected = pytest.approx(np.percentile(ms, share)) if ms else None
                assert row[f"{name}_p{share}"] == expected


def test_the_depth_counts_a_job_once_on_each_node_and_not_after_its_end() -> None:
    stays = [
        # The same node says it twice, another one as well; the end is the end for both.
        [
            event(10, 0, "queued:add"),
            event(20, 0, "queued:enqueue"),
            event(70_000, 1, "queued:retry"),
            event(130_000, 0, "acked:client"),
            event(900_000, 1, "deleted:collected"),
        ],
        # Taken by one minute, back in the next one, and still there.
        [event(10, 2, "queued:add"), event(30, 2, "delivered:"), event(61_000, 2, "queued:retry")],
    ]
    events = [(f"{job}", number) for job, numbers in enumerate(stays) for number in numbers]
    (jobs,) = jobs_of(fold(rows(events)), NODES).combine_chunks().to_batches()
    sums = sums_of(jobs).to_pylist()
    changes = {row["minute"] // 60_000: row["change"] for row in sums if row["change"]}
    assert changes == {0: 1, 1: 2, 2: -2}
