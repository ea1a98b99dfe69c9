"""The audit of simulated clusters whose logs lack something says so, and the simulator agrees."""

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from disque_spark.audit import lacks as lk
from disque_spark.audit.engine import LocalEngine
from disque_spark.audit.result import Result
from disque_spark.audit.run import audit
from disque_spark.report.completeness import nothing_lost
from disque_spark.report.numbers import make_report
from disque_spark.report.verdict import summary
from packages.spark.tests.sim.test_audit import FIRST, LATE, RULES, Run

RUNS = 4
Mutation = Callable[[list[Path], Path], None]


def judged(logs: Path, output: Path) -> tuple[Result, str]:
    """The result, and the top of the page."""
    result = audit(LocalEngine(1), [str(logs)], output, RULES)
    numbers = make_report(output)
    return result, summary(numbers) + nothing_lost(numbers)


# ---- what may happen to the segments of one node ------------------------------------------------


def _without_its_log(segments: list[Path], logs: Path) -> None:
    for path in segments:
        path.unlink()


def _without_its_end(segments: list[Path], logs: Path) -> None:
    lines = segments[-1].read_bytes().splitlines(True)
    segments[-1].write_bytes(b"".join(lines[: max(len(lines) // 2, 2)]))


def _with_an_empty_end(segments: list[Path], logs: Path) -> None:
    segments[-1].write_bytes(b"")


def _without_its_beginning(segments: list[Path], logs: Path) -> None:
    """As if the log had begun another segment in the middle, and the one before was removed."""
    head, *lines = segments[0].read_bytes().splitlines(True)
    later = json.loads(head) | {"after": "events-00000000-0-0.jsonl", "events": len(lines) // 2}
    text = json.dumps(later, separators=(",", ":")).encode() + b"\n"
    segments[0].write_bytes(text + b"".join(lines[len(lines) // 2 :]))


def _left_open(segments: list[Path], logs: Path) -> None:
    segments[-1].rename(f"{segments[-1]}.open")


def _packed(segments: list[Path], logs: Path) -> None:
    segments[-1].rename(f"{segments[-1]}.zst")


def _switched_off(segments: list[Path], logs: Path) -> None:
    """As if its log had been switched off for the middle third."""
    head, *lines = segments[-1].read_bytes().splitlines(True)
    third = len(lines) // 3
    first, last = (json.loads(lines[place]) for place in (third, 2 * third))
    stopped = {"time": first["time"], "node": first["node"], "event": "stopped"}
    started = {"time": last["time"], "node": first["node"], "event": "started"}
    told = [stopped | {"reason": "switched-off"}, started]
    middle = [json.dumps(one, separators=(",", ":")).encode() + b"\n" for one in told]
    segments[-1].write_bytes(b"".join([head, *lines[:third], *middle, *lines[2 * third :]]))


def _switched_on_late(segments: list[Path], logs: Path) -> None:
    """As if its log had not been on in the first half of its first run."""
    head, *lines = segments[0].read_bytes().splitlines(True)
    half = lines[len(lines) // 2 :]
    time = json.loads(half[0])["time"]
    known = json.loads(head)
    started = {"time": time, "node": known["node"], "event": "started"}
    told = [known | {"time": time, "since": time}, started]
    begin = [json.dumps(one, separators=(",", ":")).encode() + b"\n" for one in told]
    segments[0].write_bytes(b"".join([*begin, *half]))


CASES: dict[str, Mutation] = {
    lk.NODE: _without_its_log,
    lk.NO_STOP: _without_its_end,
    lk.EMPTY: _with_an_empty_end,
    lk.EARLIER: _without_its_beginning,
    lk.GOES_ON: _left_open,  # a file that was written just now
    lk.UNREAD: _packed,
    lk.OFF: _switched_off,
    lk.LATE: _switched_on_late,
}


def _crashed(run: Run) -> Iterator[str]:
    """The nodes whose logs have lost something in a crash."""
    for machine in run.world.machines:
        if machine.log is not None and machine.log.lost:
            yield machine.id.decode()


def _lost(run: Run) -> list[str]:
    """The jobs of which the simulator knows that they should have been delivered, and were not."""
    return [
        record.id.decode()
        for record in run.world.oracle.records
        if record.id
        and not record.sent
        and run.confirmed(LATE, record)
        and run.must_be_delivered(LATE, record)
    ]


@pytest.mark.timeout(600)
def test_logs_that_lack_something_are_never_called_whole(tmp_path: Path) -> None:
    counts: Counter[str] = Counter()
    for seed in range(FIRST, FIRST + RUNS):
        run = Run(seed, tmp_path / f"{seed}", steady=True)
        print(f"seed {seed}")  # the last one shown is the one that failed
        logs = tmp_path / f"{seed}" / "late"
        whole, text = judged(logs, tmp_path / f"{seed}-whole")
        crashed = set(_crashed(run))
        # What the simulator let happen, and nothing else.
        assert {lack.node for lack in whole.lacks} <= crashed, whole.lacks
        assert {lack.kind for lack in whole.lacks} <= {lk.KILLED, lk.NO_STOP}
        if "No job was lost" in text:
            assert not crashed
            if whole.serious == 0:
                assert not _lost(run)
        counts["whole"] += not whole.lacks
        node = run.world.machines[seed % len(run.world.machines)].id.decode()
        for kind, mutate in CASES.items():
            torn = tmp_path / f"{seed}-{kind}"
            shutil.copytree(logs, torn)
            segments = sorted(torn.glob(f"events-{node[:8]}-*"))
            if not segments or any(path.stat().st_size < 2000 for path in segments):
                continue
            mutate(segments, torn)
            result, text = judged(torn, tmp_path / f"{seed}-{kind}-tables")
            found = {(lack.kind, lack.node) for lack in result.lacks}
            assert (kind, node) in found, (kind, result.lacks)
            assert {of for _, of in found} <= {node, *crashed}, (kind, result.lacks)
            assert "No job was lost" not in text, kind
            counts[kind] += 1
    for kind in CASES:
        assert counts[kind] > 0, counts
