"""Audits of complete logs from which something was removed."""

from pathlib import Path

import pytest

from disque_spark.audit.rules import (
    CLOCK_SKEW,
    KINDS,
    LOG_END,
    LOG_GAP,
    LOG_MISSING,
    NEVER_DELIVERED,
    UNKNOWN_JOB,
    WAITING,
    WAITING_LETTER,
    Rules,
)
from packages.spark.tests.support.audited_logs import Audited, audited
from packages.spark.tests.support.planted_log import JOBS_A_SECOND, NODES, Key, about_of, generate

DAY = 86_400  # s
IN_WHOLE_LOGS = {
    *("", "attempts", "disconnect", "enqueue", "expired", "heard", "nack", "partition"),
    *("down", "line-twice", "redrive", "refused", "retry", "unknown"),
}
IN_DOUBT = {LOG_END, LOG_GAP, LOG_MISSING}
IN_TORN_LOGS = {*IN_DOUBT, "peer", "restart", "set"}


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[Key, set[str]]]:
    directory = tmp_path_factory.mktemp("whole") / "log"
    return directory, generate(directory, 6_000, anomalies=3, chunk=100, seed=3)


def without(log: Path, directory: Path, pattern: str) -> Audited:
    """Return the audit of a log without some of its files."""
    directory.mkdir()
    gone = set(log.glob(pattern))
    assert gone
    for path in log.iterdir():
        if path not in gone:
            (directory / path.name).hardlink_to(path)
    return audited([directory], Rules())


def found_in(directory: Path) -> dict[Key, set[str]]:
    found: dict[Key, set[str]] = {}
    for finding in audited([directory], Rules()).findings:
        assert bool(finding.would_decide) == (finding.reason in (*IN_DOUBT, "peer"))
        found.setdefault((finding.kind, finding.reason or ""), set()).add(about_of(finding))
    return found


def test_all_that_is_planted_is_found_and_nothing_else(
    log: tuple[Path, dict[Key, set[str]]],
) -> None:
    directory, planted = log
    assert found_in(directory) == planted
    assert {kind for kind, _ in planted} == {*KINDS} - {WAITING}


def test_what_waits_is_found_only_if_the_rules_say_how_long_it_may(
    log: tuple[Path, dict[Key, set[str]]],
) -> None:
    directory, planted = log
    usual = audited([directory], Rules())
    assert not usual.found(WAITING)
    waiting = {one.job for one in usual.waits if one.kind == WAITING}
    letters = {one.job for one in usual.waits if one.kind == WAITING_LETTER}
    assert letters == planted[WAITING_LETTER, ""]
    audit = audited([directory], Rules(waiting=60))
    old = set(audit.found(WAITING))
    assert {reason for reasons in audit.found(WAITING).values() for reason in reasons} == {None}
    assert len(old) == 3
    assert len(waiting - old) == 1  # added a moment before the end
    assert old < waiting
    others = [one for one in audit.findings if one.kind != WAITING]
    assert sorted(others, key=str) == sorted(usual.findings, key=str)


@pytest.mark.parametrize("torn", [False, True])
@pytest.mark.parametrize("jobs", [5_000, pytest.param(20_000, marks=pytest.mark.nightly)])
def test_five_of_each_kind_and_reason_among_many_jobs_are_found_and_none_is_invented(
    tmp_path: Path, torn: bool, jobs: int
) -> None:
    rate = jobs / DAY if torn else JOBS_A_SECOND
    planted = generate(tmp_path, 9 * jobs, anomalies=5, chunk=5_000, seed=9, torn=torn, rate=rate)
    found = found_in(tmp_path)
    assert found.keys() == planted.keys()
    for key, ids in planted.items():
        assert found[key] == ids, key
    assert {len(ids) for (kind, _), ids in planted.items() if kind != CLOCK_SKEW} <= {5, 10, 20}
    reasons = {reason for _, reason in planted}
    assert reasons == IN_WHOLE_LOGS | (IN_TORN_LOGS if torn else {UNKNOWN_JOB})


@pytest.mark.parametrize("node", NODES)
def test_losses_that_a_missing_log_may_explain_are_marked(
    log: tuple[Path, dict[Key, set[str]]], tmp_path: Path, node: str
) -> None:
    directory, planted = log
    audit = without(directory, tmp_path / "log", f"events-{node[:8]}-*")
    assert audit.missing == [node]
    lost = planted[NEVER_DELIVERED, ""]
    found = audit.found(NEVER_DELIVERED)
    assert {id for id, reasons in found.items() if None in reasons} <= lost
    assert {id for id, reasons in found.items() if LOG_MISSING in reasons} - lost
    skewed = {" ".join(found.nodes) for found in audit.findings if found.kind == CLOCK_SKEW}
    assert skewed <= planted[CLOCK_SKEW, ""]
    assert not [found for found in audit.findings if found.reason == "set"]


def test_losses_that_a_missing_segment_may_explain_are_marked(
    log: tuple[Path, dict[Key, set[str]]], tmp_path: Path
) -> None:
    directory, planted = log
    audit = without(directory, tmp_path / "log", f"events-{NODES[0][:8]}-*-3.jsonl")
    (name,) = audit.missing_segments
    assert name.endswith("-3.jsonl")
    assert [gap.node for gap in audit.gaps] == [audit.nodes.index(NODES[0])]
    found = audit.found(NEVER_DELIVERED)
    lost = planted[NEVER_DELIVERED, ""]
    assert {id for id, reasons in found.items() if None in reasons} <= lost
