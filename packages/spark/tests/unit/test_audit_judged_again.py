"""Many runs give the same findings as one: jobs that are not judged again would have the same
findings."""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from disque_spark.audit.classify import Finding
from disque_spark.audit.clocks import clocks_by_id, least_of
from disque_spark.audit.evidence import Logs
from disque_spark.audit.findings import judged
from disque_spark.audit.gaps import FOR_EVER, Head, ends_of, head_of
from disque_spark.audit.jobs import fold, jobs_of
from disque_spark.audit.judging import dependence, logs_of
from disque_spark.audit.manifest import Manifest, Part
from disque_spark.audit.partial_jobs import read
from disque_spark.audit.rules import Rules
from disque_spark.audit.stages import is_final
from disque_spark.files import Location
from disque_spark.segments import Piece, find_segments
from packages.spark.tests.support.clock_rows import least_in
from packages.spark.tests.support.planted_log import generate

RULES = (
    *(Rules(), Rules(settled=5), Rules(patience=900), Rules(poison=1, tolerance=0)),
    Rules(waiting=900),
)


class Runs:
    """Successive audits of more segments, which judge only what they have to.

    Attributes:
        judged: how many jobs were judged, in all runs.
    """

    def __init__(self) -> None:
        self.manifest = Manifest()
        self.judged = 0
        self._partial: list[pa.Table] = []
        self._jobs: pa.Table | None = None
        # For each job: its state, what its findings depend on, and the findings.
        self._known: dict[str, tuple[Any, str, list[Finding]]] = {}

    def read(self, segments: Sequence[Location]) -> None:
        """Add new segments."""
        manifest = self.manifest
        heads: dict[Location, Head] = {}
        for path in segments:
            head = head_of(path)
            assert head is not None
            heads[path] = head
            if head.node not in manifest.nodes:
                manifest.nodes.append(head.node)
        pieces = [Piece(path, 0, path.size()) for path in segments]
        partial, seen, notes = read(pieces, manifest.nodes)
        self._partial = [fold(pa.concat_tables([*self._partial, partial]))]
        manifest.peers = sorted(notes.peers.union(manifest.peers))
        manifest.first = min(manifest.first or seen.first, seen.first)
        manifest.last = max(manifest.last, seen.last)
        for path, stretches in notes.segments().items():
            place = next(place for place in segments if str(place) == path)
            ends = ends_of(heads[place], stretches)
            assert ends is not None
            manifest.segments[place.name] = place.size()
            manifest.ends[place.name] = list(ends)
        self._jobs = jobs_of(self._partial[0], manifest.nodes)

    @property
    def jobs(self) -> pa.Table:
        assert self._jobs is not None
        return self._jobs

    def logs(self) -> Logs:
        manifest = self.manifest
        assert self._jobs is not None
        (batch,) = self._jobs.combine_chunks().to_batches()
        whole = not manifest.without_logs
        least = least_in(least_of(batch, whole).to_pylist())
        return logs_of(manifest, clocks_by_id(least, manifest.nodes))

    def judge(self, rules: Rules) -> tuple[list[Finding], list[Finding]]:
        """Return all findings, including those not judged again; and those of a single run."""
        jobs, logs = self._jobs, self.logs()
        assert jobs is not None
        final = is_final(jobs).to_pylist()
        again: list[int] = []
        for place, row in enumerate(jobs.to_pylist()):
            depends = dependence(_part_of(row, open=not final[place]), rules, logs)
            before = self._known.get(row["id"])
            like = {name: value for name, value in row.items() if name != "complete"}
            if before is None or before[0] != like or not depends or before[1] != depends:
                again.append(place)
                self._known[row["id"]] = (like, depends, [])
        self.judged += len(again)
        for finding in found_of(jobs.take(pa.array(again, pa.int64())), rules, logs):
            assert finding.job is not None
            self._known[finding.job][2].append(finding)
        kept = [finding for _, _, found in self._known.values() for finding in found]
        return sorted(kept, key=str), sorted(found_of(jobs, rules, logs), key=str)


def found_of(jobs: pa.Table, rules: Rules, logs: Logs) -> list[Finding]:
    batches = jobs.combine_chunks().to_batches()
    return [finding for batch in batches for finding in judged(batch, rules, logs)[0]]


def _part_of(row: dict[str, Any], *, open: bool) -> Part:
    """Return a file with only this job."""
    first, last = (int(row[name].timestamp() * 1000) for name in ("first_event", "last_event"))
    made = (row["ctime"] or 0) // 1_000_000
    wait = max(row["delay"] or 0, row["ttl"] or 0)
    return Part("f", 1, 1, first, last, max(last, made), open, wait, row["retry"] or 0)


@pytest.mark.parametrize("torn", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_what_is_not_judged_again_is_found_as_before(tmp_path: Path, seed: int, torn: bool) -> None:
    rng = random.Random(seed)
    generate(tmp_path, 1_200, anomalies=1, chunk=15, seed=seed, torn=torn, rate=0.05)
    segments = sorted(find_segments([str(tmp_path)], False), key=lambda path: path.name[16:])
    if seed % 2:
        rng.shuffle(segments)  # some come late, nodes are new, gaps appear and disappear
    if seed == 2:
        del segments[len(segments) // 2]
    runs = Runs()
    jobs = 0
    while segments:
        count = rng.randrange(1, 5)
        runs.read(segments[:count])
        del segments[:count]
        kept, fresh = runs.judge(rng.choice(RULES) if seed == 3 else RULES[0])
        assert kept == fresh
        jobs += len({finding.job for finding in fresh})
    # The same again: only rules change.
    for rules in RULES:
        kept, fresh = runs.judge(rules)
        assert kept == fresh
    assert jobs


@pytest.mark.parametrize("torn", [False, True])
def test_with_time_alone_nothing_else_is_found_before_it_is_due(tmp_path: Path, torn: bool) -> None:
    generate(tmp_path, 600, anomalies=1, chunk=15, seed=5, torn=torn, rate=0.05)
    runs = Runs()
    runs.read(find_segments([str(tmp_path)], False))
    logs, jobs = runs.logs(), runs.jobs
    changes = 0
    for place in range(jobs.num_rows):
        (batch,) = jobs.slice(place, 1).combine_chunks().to_batches()
        found, due, waits = judged(batch, RULES[0], logs)
        now = logs
        while due < FOR_EVER:
            assert due > now.end
            assert judged(batch, RULES[0], now._replace(end=due - 1)) == (found, due, waits)
            now, before = now._replace(end=due), found
            found, due, waits = judged(batch, RULES[0], now)
            changes += found != before
        assert judged(batch, RULES[0], now._replace(end=now.end + 1_000_000_000))[0] == found
    assert changes
