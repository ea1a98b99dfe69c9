"""The guard reports what became more expensive, and what it cannot judge."""

import json
import sys
from pathlib import Path
from typing import TypeVar

import pytest

from tools.bench import guard
from tools.bench.callgrind import CountError
from tools.bench.guard import Plan, circumstances, judge, known_as, read_counts
from tools.bench.guard_paths import COUNTED, FEW, run

T = TypeVar("T")

PART = """\
# callgrind format
version: 1
part: {part}

desc: Trigger: Client Request: {name}|{commands}|{turns}

events: Ir
summary: {total}

totals: {total}
"""


def parts(*counts: tuple[str, int, int, int]) -> list[str]:
    return [
        PART.format(part=part, name=name, commands=commands, turns=turns, total=total)
        for part, (name, commands, turns, total) in enumerate(counts, 1)
    ]


def test_what_counting_itself_costs_is_taken_off() -> None:
    counts = read_counts(
        parts(("nothing", 1, 10, 1000), ("ADDJOB", 160, 10, 161_000), ("GETJOB", 10, 10, 6000))
    )
    assert counts == {"ADDJOB": 1000, "GETJOB": 500}


def test_without_counts_there_is_nothing_to_judge() -> None:
    with pytest.raises(CountError):
        read_counts(["# callgrind format\ntotals: 5\n"])


@pytest.mark.parametrize(("now", "good"), [(1000, True), (1100, True), (1101, False), (500, True)])
def test_more_than_a_tenth_is_too_much(now: int, good: bool) -> None:
    _, wrong = judge({"ADDJOB": now}, {"ADDJOB": 1000})
    assert (not wrong) == good


def test_a_path_that_one_side_does_not_have_is_told() -> None:
    _, wrong = judge({"new": 5}, {"old": 5})
    assert len(wrong) == 2


OWN = "this interpreter"
OTHER = "compiled by something"


class Rig:
    """Run the command with the test's own counts and baseline file."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.file = directory / "baseline.json"
        self.compiled = directory / "python"
        self.counts = {"ADDJOB": 1000}
        self.compiled_counts = {"ADDJOB": 300}
        self.key = OWN
        monkeypatch.setattr(guard, "known_as", lambda python: self._is(python, self.key, OTHER))
        monkeypatch.setattr(
            guard, "count", lambda python: self._is(python, self.counts, self.compiled_counts)
        )

    def _is(self, python: str, own: T, compiled: T) -> T:
        return {sys.executable: own, str(self.compiled): compiled}[python]

    def __call__(self, update: bool = False, forms: tuple[str, ...] = ("pure", "compiled")) -> int:
        return guard.run(Plan(forms, str(self.compiled), update), self.file)


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rig:
    return Rig(tmp_path, monkeypatch)


def test_only_update_changes_the_baseline(rig: Rig) -> None:
    assert rig(update=True) == 0
    assert rig() == 0
    rig.counts = {"ADDJOB": 1200}
    before = rig.file.read_text()
    assert rig() == 1
    assert rig.file.read_text() == before
    assert rig(update=True) == 0
    assert rig() == 0


def test_an_interpreter_without_a_baseline_is_not_judged_and_that_is_said(
    rig: Rig, capsys: pytest.CaptureFixture[str]
) -> None:
    rig.file.write_text(json.dumps({"another one": {"ADDJOB": 1}}))
    assert rig() == 0
    assert OWN in capsys.readouterr().out


def test_an_update_keeps_what_is_known_of_other_interpreters(rig: Rig) -> None:
    rig.file.write_text(json.dumps({"another one": {"ADDJOB": 1}}))
    assert rig(update=True) == 0
    assert json.loads(rig.file.read_text()) == {
        "another one": {"ADDJOB": 1},
        OWN: {"ADDJOB": 1000},
    }


def test_each_build_has_its_own_baseline(rig: Rig) -> None:
    rig.compiled.touch()
    assert rig(update=True) == 0
    assert json.loads(rig.file.read_text()) == {OWN: {"ADDJOB": 1000}, OTHER: {"ADDJOB": 300}}
    rig.compiled_counts = {"ADDJOB": 400}
    assert rig() == 1
    assert rig(forms=("pure",)) == 0
    assert rig(forms=("compiled",)) == 1


def test_a_missing_compiled_build_is_skipped_with_a_message(
    rig: Rig, capsys: pytest.CaptureFixture[str]
) -> None:
    assert rig(update=True) == 0
    assert rig() == 0
    assert "make compiled" in capsys.readouterr().out


def test_the_measured_python_reports_what_counts_depend_on() -> None:
    assert known_as(sys.executable) == circumstances()
    with pytest.raises(CountError, match="no-such-python"):
        known_as("no-such-python")


class Log:
    """Counts how often counting is switched on or off."""

    def __init__(self) -> None:
        self.switched = 0
        self.told: dict[str, tuple[int, int]] = {}

    def toggle(self) -> None:
        self.switched += 1

    def name(self, path: str, commands: int, turns: int) -> None:
        assert path not in self.told
        assert self.switched == 2 * turns or not path
        self.switched = 0
        self.told[path] = commands, turns


@pytest.mark.slow
def test_all_paths_can_be_taken_and_say_how_much_they_did() -> None:
    log = Log()
    run(log)
    assert log.told["ADDJOB, pipelined by 1"] == (COUNTED, COUNTED)
    assert log.told["QACK, pipelined by 16"] == (COUNTED, COUNTED // 16)
    assert "a job on two nodes" in log.told
    assert log.told["ACKJOB, three nodes, pipelined by 16"] == (FEW[1], FEW[1] // 16)


def test_the_shipped_baseline_knows_all_paths() -> None:
    log = Log()
    run(log)
    for counts in json.loads(guard.BASELINE.read_text()).values():
        assert set(counts) == set(log.told) - {"", guard.BASE}
