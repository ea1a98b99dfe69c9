"""Which parts of the tables of an audit are redone when something is new, and which are dropped."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from disque_spark.audit.evidence import Logs
from disque_spark.audit.gaps import FOR_EVER, Ends, Gap, gaps_of
from disque_spark.audit.judging import clocks, dependence, is_due, logs_of
from disque_spark.audit.lacks import SEGMENT
from disque_spark.audit.manifest import (
    DAY,
    Day,
    Manifest,
    Minutes,
    Part,
    day_of,
    least_rows,
    start_of,
)
from disque_spark.audit.minute_files import BEFORE, NEW, NO_MINUTE, OLD, with_depth
from disque_spark.audit.rules import Rules
from disque_spark.audit.stages import is_final
from disque_spark.audit.store import Store, StoreError
from disque_spark.audit.unread import Segments
from disque_spark.files import location

A, B = "a" * 40, "b" * 40
START = start_of("2026-11-01")
HOUR = 3_600_000
RULES = Rules(settled=60)


def part(first: int = 0, last: int = HOUR, *, open: bool = False, **more: object) -> Part:
    times = {"first": START + first, "last": START + last, "latest": START + last}
    return Part("f", 1, 1, open=open, **times, **more)  # type: ignore[arg-type]


def logs(*gaps: Gap, end: int = 10 * HOUR, offsets: tuple[int, int] = (0, 0)) -> Logs:
    return Logs([A, B], offsets, START + end, list(gaps), [[0, 1], [1, 0]])


def depends(part: Part, *gaps: Gap, **more: object) -> str:
    return dependence(part, RULES, logs(*gaps, **more))  # type: ignore[arg-type]


def test_time_without_events_is_known_too() -> None:
    late = part(last=HOUR, open=True, retry=300)
    day = Day(jobs=[late])
    manifest = Manifest(nodes=[A], last=START + HOUR, days={"2026-11-01": day})
    manifest.quiet = 90_000
    known = logs_of(manifest, clocks(manifest))
    assert known.end == START + HOUR + 90_000
    late.judged = dependence(late, RULES, known)
    assert is_due(manifest, 90_000)  # it may still become lost: nobody knows when
    late.due = known.end + 5
    assert [is_due(manifest, 90_000 + ms) for ms in (-1, 0, 4, 5)] == [True, False, False, True]
    late.due = known.end + HOUR
    assert [is_due(manifest, 90_000 + ms) for ms in (59_999, 60_000)] == [False, True]
    late.due = FOR_EVER
    assert not is_due(manifest, HOUR)
    manifest.quiet = 10 * HOUR
    late.judged = dependence(late, RULES, logs_of(manifest, clocks(manifest)))
    late.due = 0
    assert not is_due(manifest, 20 * HOUR)
    assert Manifest.of(manifest.text()).quiet == 10 * HOUR


def test_jobs_that_are_over_are_judged_again_when_clocks_rules_or_near_gaps_are_others() -> None:
    near = Gap(0, START + 10, START + 20)
    before = depends(part())
    assert before == depends(part(), end=1000 * HOUR)
    assert before != depends(part(), offsets=(0, 1))
    assert before != dependence(part(), Rules(settled=60, poison=9), logs())
    assert before != depends(part(), near)
    assert depends(part(), near) != depends(part(), near._replace(start=START + 11))
    # For some reasons, it matters that a node has gaps at all, but not where.
    far = Gap(0, START + 5 * HOUR, START + 6 * HOUR)
    assert before != depends(part(), far)
    assert depends(part(), far) == depends(part(), far, Gap(0, far.start + 1, far.end + 1))


def test_the_end_of_a_log_that_goes_on_changes_nothing_for_jobs_that_are_over() -> None:
    ends = [Gap(0, START + hours * HOUR, FOR_EVER) for hours in (3, 4)]
    assert depends(part(), ends[0]) == depends(part(), ends[1], end=11 * HOUR)
    assert depends(part(), ends[0]) != depends(part(), Gap(0, START + 10, FOR_EVER))


def test_open_jobs_are_judged_each_time_until_time_alone_changes_nothing() -> None:
    open = part(open=True, wait=2 * 3600, retry=300)
    assert depends(open, end=3 * HOUR) == ""
    later = depends(open, end=4 * HOUR)
    patient = Rules(settled=60, patience=5 * 3600)
    assert dependence(open, patient, logs(end=4 * HOUR)) == ""
    assert later != ""
    assert later == depends(open, end=5 * HOUR)
    # Any later gap may contain their delivery, and so may the time since a node went silent.
    assert later != depends(open, Gap(0, START + 3 * HOUR, START + 3 * HOUR + 1), end=5 * HOUR)
    talking = depends(open, Gap(0, START + 5 * HOUR - 1, FOR_EVER), end=5 * HOUR)
    silent = depends(open, Gap(0, START + 4 * HOUR, FOR_EVER), end=5 * HOUR)
    assert talking != silent
    assert silent == depends(open, Gap(0, START + 4 * HOUR, FOR_EVER), end=6 * HOUR)


def test_clocks_are_those_of_all_files_and_of_days_that_were_dropped() -> None:
    manifest = Manifest(nodes=[A, B], peers=[A, B], copied=[[0, 1, 5]], heard=[[1, 0, 3]])
    manifest.days["2026-11-01"] = Day([part(copied=[[0, 1, 2], [1, 0, 4]])])
    assert clocks(manifest).ahead == [0, -1] or clocks(manifest).ahead == [1, 0]
    manifest.peers = [A, B, "c" * 40]  # the news may have come from there
    assert logs_of(manifest, clocks(manifest)).gaps[-1] == Gap(2, 0, FOR_EVER)
    assert least_rows([[0, 1, 5], [0, 1, 2], [1, 0, 9]]) == [[0, 1, 2], [1, 0, 9]]


# ---- days that are dropped ----------------------------------------------------------------------


def name_of(node: str, time: int, number: int) -> str:
    return f"events-{node[:8]}-{time:013d}-{number}.jsonl"


def kept_manifest(*, gap: bool = False) -> Manifest:
    """Five days, each with a segment of A."""
    manifest = Manifest(nodes=[A], peers=[A], first=START, last=START + 4 * DAY + HOUR, jobs=5)
    before = ""
    for number in range(5):
        at = START + number * DAY
        name = name_of(A, at, number)
        again = gap and number == 1
        ends = Ends(A, at, at + HOUR, number == 0 or again, False, [], before, 1, 1)
        manifest.segments[name] = 10
        manifest.ends[name] = list(ends)
        manifest.days[day_of(at)] = Day([part(copied=[[0, 1, number]])], [Minutes("m", at)], [])
        before = name
    return manifest


@pytest.mark.parametrize("gap", [False, True])
def test_days_are_dropped_when_they_ended_long_enough_ago(gap: bool) -> None:
    manifest = kept_manifest(gap=gap)
    names = list(manifest.segments)
    assert not manifest.drop_days(4)
    assert manifest.drop_days(1)
    assert list(manifest.days) == ["2026-11-04", "2026-11-05"]
    assert (manifest.jobs, manifest.copied) == (2, [[0, 1, 0]])
    # The last segment before them shows that nothing is missing there.
    assert list(manifest.segments) == names[2:]
    assert not [lack for lack in manifest.lacks(0) if lack.kind == SEGMENT]
    gaps = gaps_of(manifest.all_ends(), [A], manifest.segments, manifest.past)
    first = [Gap(0, 0, START + DAY)] if gap else []
    assert gaps == [*first, Gap(0, manifest.last, FOR_EVER)]
    assert not manifest.drop_days(1)
    assert Manifest.of(manifest.text()).text() == manifest.text()


def test_a_day_that_late_segments_made_anew_is_dropped_again() -> None:
    manifest = kept_manifest()
    manifest.drop_days(1)
    late = start_of("2026-11-02")
    for keep in (1, None, 9):
        manifest.days["2026-11-02"] = Day([part()], [Minutes("m", late)], [])
        manifest.jobs += 1
        manifest.first = late
        assert manifest.drop_days(keep)
        assert list(manifest.days) == ["2026-11-04", "2026-11-05"]
        assert (manifest.jobs, manifest.first) == (2, start_of("2026-11-04"))
        assert not manifest.drop_days(keep)


def test_segments_that_were_dropped_are_not_new_when_they_are_still_there(tmp_path: Path) -> None:
    manifest = kept_manifest()
    paths = [location(tmp_path / name) for name in manifest.segments]
    for path in paths:
        path.write_bytes(b"x" * 10)
    manifest.drop_days(1)
    assert not Segments(paths, manifest.segments, manifest.is_past).new
    late = location(tmp_path / name_of(B, START, 0))
    late.write_bytes(b'{"time":1,"node":"%s","event":"started"}\n' % B.encode())
    assert list(Segments([*paths, late], manifest.segments, manifest.is_past).new) == [late]


# ---- depths of queues ---------------------------------------------------------------------------


def test_a_depth_goes_on_from_what_is_known_before() -> None:
    columns = {
        "queue": ["q", "q", "q", "q", "r", None, None],
        "minute": [NO_MINUTE, 60, 120, 180, 60, 120, 60],
        "change": [None, None, 2, -1, 4, 1, 1],
        "depth": [3, 5, None, None, None, None, None],
        "role": [BEFORE, OLD, NEW, NEW, NEW, NEW, NEW],
        "most_depth": [None, None, 2, 0, 4, 1, 1],
    }
    expected = {("q", -1): 3, ("q", 60): 5, ("q", 120): 7, ("q", 180): 6, ("r", 60): 4}
    expected |= {(None, 60): 1, (None, 120): 2}  # type: ignore[dict-item]
    order = np.random.default_rng(1).permutation(7)
    table = pa.table(columns).take(pa.array(order))
    rows = with_depth(table).to_pylist()
    assert {(row["queue"], row["minute"]): row["depth"] for row in rows} == expected
    assert len(with_depth(pa.table(columns).slice(0, 0))) == 0


def test_jobs_that_no_line_tells_anew_stay_open() -> None:
    """Their later lines may have any time, if clocks are far apart."""
    jobs = pa.table(
        {
            "ended": ["acked", "acked", None, "evicted"],
            "complete": [True, True, True, True],
            "ctime": [1, None, 1, 1],
        }
    )
    assert is_final(jobs).to_pylist() == [True, False, False, False]


# ---- versions -----------------------------------------------------------------------------------


def test_one_of_two_concurrent_writers_makes_the_version(tmp_path: Path) -> None:
    one, other = Store(tmp_path), Store(tmp_path)
    one.commit(Manifest(events=1))
    with pytest.raises(StoreError, match="another audit"):
        other.commit(Manifest(events=2))
    assert Store(tmp_path).manifest.events == 1


def test_files_are_kept_for_readers_of_the_previous_version_only(tmp_path: Path) -> None:
    store = Store(tmp_path)
    day = "2026-11-01"
    place = store.place("jobs", day)
    for version in (1, 2, 3):
        name = f"{store.stamp()}-x.parquet"
        (place / name).write_bytes(b"")
        (place / f"{store.stamp()}-of-a-task-that-failed.parquet").write_bytes(b"")
        files = Day([Part(name, 1, 0, 0, 0, 0, False)])
        store.commit(Manifest(days={day: files}, changed=[f"jobs/{day}"]))
        assert [path.name for path in (tmp_path / "current" / "jobs" / f"day={day}").iterdir()] == [
            name
        ]
        assert len(place.files()) == min(version, 2)
    store.commit(Manifest(days={day: files}))
    assert [path.name for path in place.files()] == [name]
    assert len(list((tmp_path / "manifests").iterdir())) == 2
    assert (tmp_path / "current" / "jobs" / f"day={day}" / name).exists()


@pytest.mark.parametrize("step", ["_sync", "_put", "_show", "_point", "_tidy"])
@pytest.mark.parametrize("done", [False, True])
def test_a_run_may_die_between_any_two_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, done: bool
) -> None:
    day, place = "2026-11-01", tmp_path / "current" / "jobs" / "day=2026-11-01"

    def write(store: Store) -> None:
        name = f"{store.stamp()}-x.parquet"
        (store.place("jobs", day) / name).write_bytes(b"")
        files = Day([Part(name, 1, 0, 0, 0, 0, False)])
        store.commit(Manifest(days={day: files}, changed=[f"jobs/{day}"]))

    store = Store(tmp_path)
    write(store)
    real = getattr(Store, step)

    def die(*args: object) -> None:
        if done:
            real(*args)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Store, step, die)
        with pytest.raises(KeyboardInterrupt):
            write(store)
    assert all(path.exists() for path in place.iterdir())
    # What is there is one of the two versions, and the next run continues from it.
    there = Store(tmp_path)
    with there.locked():
        (path,) = place.iterdir()
        assert [path.name] == there.manifest.files("jobs")[day]
        write(there)
    (path,) = place.iterdir()
    assert path.exists()
    assert [path.name] == Store(tmp_path).manifest.files("jobs")[day]


def test_a_late_writer_leaves_the_version_of_another_unchanged(tmp_path: Path) -> None:
    """As with two machines on a file system without locks."""
    day = "2026-11-01"
    one, other = Store(tmp_path), Store(tmp_path)
    for store in (one, other):
        name = f"{store.stamp()}-x.parquet"
        (store.place("jobs", day) / name).write_bytes(b"")
        files = Day([Part(name, 1, 0, 0, 0, 0, False)])
        manifest = Manifest(days={day: files}, changed=[f"jobs/{day}"])
        if store is one:
            store.commit(manifest)
            continue
        with pytest.raises(StoreError, match="another audit"):
            store.commit(manifest)
    (path,) = (tmp_path / "current" / "jobs" / f"day={day}").iterdir()
    assert [path.name] == Store(tmp_path).manifest.files("jobs")[day]
    assert path.exists()


def test_an_obstacle_is_named_before_the_work_starts(tmp_path: Path) -> None:
    (tmp_path / "current").mkdir()
    with pytest.raises(StoreError, match="current is in the way"), Store(tmp_path).locked():
        pass
    (tmp_path / "current").rmdir()
    with Store(tmp_path).locked():
        pass
