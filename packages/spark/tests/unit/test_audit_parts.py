"""The parts of an audit: from lines to jobs, and from jobs to minutes."""

import random
from collections.abc import Collection
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from disque_spark.audit.jobs import FACTS, NAMES, fold, jobs_of
from disque_spark.audit.partial_jobs import Seen, cut, read
from disque_spark.audit.queue_minutes import COUNTS, minutes_of, sums_of
from disque_spark.audit.trace import CODE_BITS, CODES, TIME_SHIFT
from disque_spark.files import location
from packages.spark.tests.support.planted_log import NODES, generate
from packages.spark.tests.support.written_logs import Lines

A, B, C = NODES


def event(at: int, node: int, what: str) -> int:
    return at << TIME_SHIFT | node << CODE_BITS | CODES[what]


def rows(events: list[tuple[str, int]]) -> pa.Table:
    ids, numbers = zip(*events, strict=True)
    columns = {"id": list(ids), "queue": ["q"] * len(ids), "event": list(numbers)}
    return pa.table({**columns, **nothing(len(ids), columns)})


def nothing(count: int, known: Collection[str]) -> dict[str, pa.Array]:
    """Return the columns of events about which nothing is known."""
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
    assert sum(ids.values()) < len(ids) * 1.7  # most are in only one slice


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
        # The same node logs it twice, and so does another one; the end is the end for both.
        [
            event(10, 0, "queued:add"),
            event(20, 0, "queued:enqueue"),
            event(70_000, 1, "queued:retry"),
            event(130_000, 0, "acked:client"),
            event(900_000, 1, "deleted:collected"),
        ],
        # Taken within one minute, back in the next one, and still there.
        [event(10, 2, "queued:add"), event(30, 2, "delivered:"), event(61_000, 2, "queued:retry")],
    ]
    events = [(f"{job}", number) for job, numbers in enumerate(stays) for number in numbers]
    (jobs,) = jobs_of(fold(rows(events)), NODES).combine_chunks().to_batches()
    sums = sums_of(jobs).to_pylist()
    changes = {row["minute"] // 60_000: row["change"] for row in sums if row["change"]}
    assert changes == {0: 1, 1: 2, 2: -2}
