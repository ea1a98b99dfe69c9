"""What the audit, its command and its watch say about jobs that wait, and about dead letters."""

import argparse
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from disque_spark.audit.evidence import Logs
from disque_spark.audit.findings import FINDING_SCHEMA, as_batch, judged, waits_of
from disque_spark.audit.gaps import FOR_EVER, Gap
from disque_spark.audit.jobs import FACTS, fold, jobs_of
from disque_spark.audit.result import Result
from disque_spark.audit.rules import (
    DEAD,
    KINDS,
    NEVER_DELIVERED,
    ONCE_TWICE,
    SERIOUS,
    TOLD,
    TWICE,
    WAITING,
    WAITING_LETTER,
    Rules,
)
from disque_spark.audit.trace import CODE_BITS, CODES, TIME_SHIFT
from disque_spark.audit.waits import MOST_QUEUES, OTHERS, UNSURE, Waits, add_waits, waiting_of
from disque_spark.cli.argument_types import kinds
from disque_spark.cli.arguments import parser
from disque_spark.cli.outcome import outcome
from disque_spark.watch.loop import in_ms
from disque_spark.watch.notices import Findings, News, Standing, Told, View
from packages.spark.tests.support.audited_logs import Audited
from packages.spark.tests.support.judged_jobs import (
    ADDED,
    END,
    ID,
    NODES,
    A,
    B,
    Step,
    findings,
)
from packages.spark.tests.support.judged_jobs import (
    judged as found_in,
)
from packages.spark.tests.unit.test_audit_changes import JOB, START, Line
from packages.spark.tests.unit.test_audit_changes import audit_of as audit_of_lines

TAKEN: list[Step] = [*ADDED, (2000, A, "delivered:")]
BACK: list[Step] = [*TAKEN, (9000, A, "nacked:"), (9000, A, "queued:nack")]


def result_of(audit: Audited, **more: Any) -> Result:
    found = audit.findings
    return Result(
        *(Path(), 3, audit.seen.events, len(audit.jobs), 0, 0, 0),
        findings=Counter(one.kind for one in found),
        reasons=Counter((one.kind, one.reason) for one in found),
        waits=waits_of(audit.waits),
        **more,
    )


def waits(steps: list[Step], logs: Logs, rules: Rules | None = None, **facts: int) -> list[Any]:
    columns: dict[str, Any] = {"id": [ID] * len(steps), "queue": ["q"] * len(steps)}
    columns["group"] = pa.nulls(len(steps), pa.string())
    columns["event"] = [at << TIME_SHIFT | on << CODE_BITS | CODES[what] for at, on, what in steps]
    columns |= {name: pa.array([facts.get(name)] * len(steps), pa.int64()) for name in FACTS}
    (batch,) = jobs_of(fold(pa.table(columns)), NODES).combine_chunks().to_batches()
    return [(one.kind, one.time) for one in judged(batch, rules or Rules(), logs).waits]


LOGS = Logs(NODES, (0, 0, 0), END)


# ---- what waits ---------------------------------------------------------------------------------


def test_a_job_that_is_in_a_queue_by_a_log_that_says_everything_waits_and_is_no_finding() -> None:
    assert found_in(ADDED) == found_in(BACK, retry=30) == set()
    assert waits(ADDED, LOGS) == [(WAITING, 1000)]
    assert waits(BACK, LOGS, retry=30) == [(WAITING, 9000)]
    assert waits(BACK, LOGS, retry=0) == [(WAITING, 9000)]
    assert waits([*ADDED, (2000, B, "queued:retry")], LOGS) == [(WAITING, 1000)]
    # Gone from the queue, and not delivered.
    for end in ("dequeued:command", "exported:", "evicted:"):
        steps: list[Step] = [*ADDED, (2000, A, end)]
        assert waits(steps, LOGS) == []
        assert {kind for kind, _ in found_in(steps)} == {NEVER_DELIVERED}
    for end in ("acked:client", "cancelled:client", "expired:", "delivered:"):
        assert waits([*ADDED, (2000, A, end)], LOGS) == []


def test_it_may_be_lost_if_the_log_of_its_node_has_a_gap_or_an_end_since_then() -> None:
    for gap, reason in ((Gap(A, 1500, 1600), "log-gap"), (Gap(A, 2000, FOR_EVER), "log-end")):
        logs = LOGS._replace(gaps=[gap])
        assert waits(ADDED, logs) == []
        assert {(one.kind, one.reason) for one in findings(ADDED, logs)} == {
            (NEVER_DELIVERED, reason)
        }
    for gap in (Gap(A, 0, 999), Gap(B, 0, FOR_EVER), Gap(A, END - 1000, FOR_EVER)):
        assert waits(ADDED, LOGS._replace(gaps=[gap])) == [(WAITING, 1000)]
    # The node still writes its log, and has nothing to say.
    live = LOGS._replace(gaps=[Gap(A, 2000, FOR_EVER)], live=[A])
    assert waits(ADDED, live) == [(WAITING, 1000)]
    assert findings(ADDED, live) == []


def test_a_node_that_was_started_since_then_may_have_lost_it() -> None:
    def reasons(*starts: tuple[int, int]) -> list[str | None]:
        found = findings(ADDED, LOGS._replace(starts=starts), Rules(waiting=1))
        assert {one.kind for one in found} == {WAITING}
        return [one.reason for one in found]

    assert reasons((A, 900), (A, 1000), (B, 5000)) == [None]
    assert reasons((A, 900), (A, 1001)) == ["restart"]
    found = findings(ADDED, LOGS._replace(starts=[(A, 1001)]), Rules(waiting=1))
    assert waits_of(found)[UNSURE] == {"q": [1, 1000]}
    result = Result(Path(), 1, 1, 1, 0, 0, 0, findings=Counter(), waits=waits_of(found))
    assert result.unsure.jobs == result.waiting.jobs == 1
    assert [text for text in outcome(result) if "started again: 1;" in text]


def test_waiting_is_a_finding_beyond_a_limit_only_and_never_serious() -> None:
    def kinds_of(limit: int) -> set[str]:
        return {one.kind for one in findings(ADDED, LOGS, Rules(waiting=limit))}

    age = (END - 1000) // 1000 - Rules().settled
    assert kinds_of(0) == kinds_of(age + 1) == set()
    assert kinds_of(age - 1) == {WAITING}
    assert WAITING not in SERIOUS
    assert WAITING not in TOLD


def test_time_in_queues_is_no_time_with_workers() -> None:
    """A job was handed back once and waited behind a long backlog, twice."""
    again: list[Step] = [*BACK, (END - 90_000, A, "delivered:")]
    assert found_in(again, retry=60) == {(TWICE, "nack")}
    back: list[Step] = [*again, (END - 80_000, A, "nacked:"), (END - 80_000, A, "queued:nack")]
    assert found_in(back, retry=60) == {(TWICE, "nack")}
    assert waits(back, LOGS, retry=60) == [(WAITING, END - 80_000)]


def test_a_job_whose_time_to_live_is_over_does_not_wait_any_more() -> None:
    assert waits(ADDED, LOGS, ttl=60) == []
    assert found_in(ADDED, ttl=60) == {("expired-undelivered", None)}


def test_copies_of_a_job_that_was_refused_do_not_wait() -> None:
    assert waits([(1000, B, "copied:"), (5000, B, "queued:retry")], LOGS) == []


def test_counts_of_many_queues_are_bounded() -> None:
    total: Waits = {}
    for number in range(MOST_QUEUES + 5):
        add_waits(total, {WAITING: {f"q{number}": [2, 50 + number]}})
    add_waits(total, {WAITING: {"q3": [1, 7], "another": [1, 9]}})
    assert len(total[WAITING]) == MOST_QUEUES + 1
    assert total[WAITING]["q3"] == [3, 7]
    assert total[WAITING][OTHERS] == [11, 9]
    assert waiting_of(total, WAITING) == (2 * MOST_QUEUES + 12, 7, "q3")
    assert waiting_of(total, WAITING_LETTER).jobs == 0


# ---- whole logs ---------------------------------------------------------------------------------


def backlog(count: int, done: int) -> list[Line]:
    lines: list[Line] = []
    for number in range(count):
        key = {"id": f"{ID[:-4]}{number:04}"}
        lines.append((10 + number, A, "added", JOB | key))
        lines.append((10 + number, A, "queued", {"reason": "add"} | key))
        if number < done:
            at = 1000 + 10 * number
            lines.append((at, A, "delivered", {"client": "w"} | key))
            lines.append((at + 5, A, "acked", {"reason": "client", "client": "w"} | key))
    return sorted(lines, key=lambda line: line[0])


def test_a_backlog_that_a_node_takes_along_when_it_stops_is_no_finding(tmp_path: Path) -> None:
    result = result_of(audit_of_lines(tmp_path, backlog(300, 20)))
    assert not result.findings
    assert not result.fails()
    said = list(outcome(result))
    assert said[0].startswith("280 jobs wait, the oldest since ")
    assert said[0].endswith("in q")
    assert said[1:] == ["no findings"]


def letters(redriven: bool, client: str | None = None, reason: str = "redrive") -> list[Line]:
    """Four jobs that became dead letters, two of which REDRIVE has sent back."""
    lines: list[Line] = []
    for number in range(4):
        job, letter, new = ({"id": f"{ID[:-4]}{number}{what}05"} for what in "jln")
        lines += [
            (10, A, "added", JOB | job),
            (10, A, "queued", {"reason": "add"} | job),
            (20, A, "delivered", {"client": "w"} | job),
            (30, A, "dead", {"reason": "attempts"} | job),
            (30 + number, A, "added", JOB | letter),
            (30 + number, A, "queued", {"reason": "death"} | letter),
        ]
        if redriven and number < 2:
            said = {"reason": reason} | ({"client": client} if client else {})
            lines += [
                (90_000, A, "added", JOB | new),
                (90_000, A, "queued", {"reason": "redrive"} | new),
                (90_000, A, "acked", said | letter),
                (90_100, A, "delivered", {"client": "w"} | new),
                (90_200, A, "acked", {"reason": "client", "client": "w"} | new),
            ]
    return lines


def test_letters_that_were_sent_back_are_no_finding(tmp_path: Path) -> None:
    audit = audit_of_lines(tmp_path, letters(redriven=True))
    assert Counter(one.kind for one in audit.findings) == {DEAD: 4, WAITING_LETTER: 2}
    assert not result_of(audit).fails()


def test_nor_are_they_if_an_older_node_sent_them_back(tmp_path: Path) -> None:
    audit = audit_of_lines(tmp_path / "old", letters(redriven=True, reason="client"))
    assert not result_of(audit).fails()
    # A client that acknowledges a letter that it did not get is another thing.
    audit = audit_of_lines(tmp_path / "by", letters(redriven=True, reason="client", client="w"))
    assert len(audit.found("acknowledged-unseen")) == 2


def test_dead_letters_have_a_sentence_of_their_own(tmp_path: Path) -> None:
    result = result_of(audit_of_lines(tmp_path, letters(redriven=False)))
    said = list(outcome(result))
    assert said[0].startswith("4 jobs failed for good; 4 letters wait since ")
    assert said[1:] == ["dead: 4 (4 attempts)", "letter-waiting: 4"]
    assert not result.fails()
    assert result.fails([DEAD])
    assert result.fails([WAITING_LETTER])
    assert not result.fails([WAITING])


# ---- the command --------------------------------------------------------------------------------


def test_what_else_the_command_fails_on() -> None:
    def options(*words: str) -> argparse.Namespace:
        return parser().parse_args(["audit", "log", "--output", "out", *words])

    assert options().fail_on == []
    assert options("--fail-on", "dead, waiting").fail_on == ["dead", "waiting"]
    assert options("--waiting", "2h").waiting == 7200
    assert kinds(",".join(KINDS)) == list(KINDS)
    with pytest.raises(argparse.ArgumentTypeError, match="did you mean waiting"):
        kinds("dead,waitng")
    with pytest.raises(argparse.ArgumentTypeError, match="there are once-delivered-twice"):
        kinds("xyz")
    for nothing in ("", ",", " "):
        with pytest.raises(argparse.ArgumentTypeError):
            kinds(nothing)


def test_jobs_that_wait_make_the_command_fail_from_the_limit_on(tmp_path: Path) -> None:
    result = result_of(audit_of_lines(tmp_path / "any", backlog(3, 1)))
    assert result.fails([WAITING])
    limited = Rules(waiting=7 * 3600)
    audit = audit_of_lines(tmp_path / "old", backlog(3, 1), limited)
    assert not result_of(audit, settings=limited.settings).fails([WAITING])
    limited = Rules(waiting=3600)
    audit = audit_of_lines(tmp_path / "late", backlog(3, 1), limited)
    assert result_of(audit, settings=limited.settings).fails([WAITING])
    assert not result_of(audit, settings=limited.settings).fails()


def test_the_worst_comes_first_everywhere() -> None:
    assert KINDS[0] == SERIOUS[0] == TOLD[0] == ONCE_TWICE
    assert KINDS[: len(SERIOUS)] == SERIOUS
    assert len(set(KINDS)) == len(KINDS)


def test_a_line_about_a_delivery_that_is_there_twice_is_serious_for_at_most_once_jobs(
    tmp_path: Path,
) -> None:
    """Of four jobs."""
    lines: list[Line] = []
    for number in range(4):
        key = {"id": f"{ID[:-4]}{number:02}5a"}
        lines += [
            (10, A, "added", JOB | {"retry": 0} | key),
            (10, A, "queued", {"reason": "add"} | key),
            *[(20, A, "delivered", {"client": "w"} | key)] * 2,
            (30, A, "acked", {"reason": "client", "client": "w"} | key),
        ]
    audit = audit_of_lines(tmp_path, lines)
    assert {(one.kind, one.reason) for one in audit.findings} == {(ONCE_TWICE, "line-twice")}
    result = result_of(audit)
    assert result.fails()
    assert list(outcome(result)) == ["once-delivered-twice: 4 (4 line-twice)"]


# ---- the watch ----------------------------------------------------------------------------------


def table_of(found: list[Any]) -> pa.Table:
    return in_ms(pa.Table.from_batches([as_batch(found)], FINDING_SCHEMA), "time")


@pytest.mark.parametrize("quiet", [False, True])
def test_a_watch_says_nothing_about_a_backlog_that_a_worker_serves_in_order(quiet: bool) -> None:
    """A look each five seconds at 50 jobs, each of which takes two seconds; or nobody works."""
    rules = Rules(settled=5)
    told = Told()
    start = START
    ids = [f"{ID[:-4]}{number:04}" for number in range(50)]
    events: list[tuple[int, str, str]] = []
    for number, id in enumerate(ids):
        events += [(start + number, id, "added:"), (start + number, id, "queued:add")]
        if not quiet:
            begin = start + 1000 + 2000 * number
            events += [(begin, id, "delivered:"), (begin + 1999, id, "acked:client")]
    for now in range(start + 1000, start + 110_000, 5_000):
        known = [event for event in events if event[0] <= now]
        columns: dict[str, Any] = {
            "id": [id for _, id, _ in known],
            "queue": ["q"] * len(known),
            "group": pa.nulls(len(known), pa.string()),
            "event": [at << TIME_SHIFT | CODES[what] for at, _, what in known],
        }
        facts = {"retry": 300, "ttl": 86_400, "copies": 1, "delay": 0}
        for name in FACTS:
            columns[name] = pa.array([facts.get(name)] * len(known), pa.int64())
        (batch,) = jobs_of(fold(pa.table(columns)), NODES).combine_chunks().to_batches()
        # The node has not stopped, and still writes its segment.
        logs = Logs(NODES, (0, 0, 0), now, [Gap(A, known[-1][0], FOR_EVER)], live=[A])
        found = [one for one in judged(batch, rules, logs).found if one.kind in TOLD]
        view = View(now, now, Standing([Findings(table_of(found))], TOLD))
        assert News(told, view).notice() is None, now


def test_a_notice_tells_the_worst_first() -> None:
    old, new = findings([*ADDED, (2000, A, "dequeued:command")], LOGS), findings(TAKEN, LOGS)
    twice: list[Step] = [*TAKEN, (9000, A, "delivered:"), (9500, A, "acked:client")]
    worst = findings(twice, LOGS, retry=0)
    found = [one._replace(job=f"{number}") for number, one in enumerate([*old, *new, *worst])]
    notice = News(Told(), View(END, END, Standing([Findings(table_of(found))], TOLD))).notice()
    assert notice is not None
    kinds_told = [row["kind"] for row in notice.found]
    assert kinds_told == sorted(kinds_told, key=KINDS.index)
    assert kinds_told[0] == ONCE_TWICE
