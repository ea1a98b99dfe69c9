"""Findings about jobs that nobody got, or that nobody finished, and their reasons."""

from collections.abc import Sequence

import pytest

from disque_spark.audit.evidence import Logs
from disque_spark.audit.findings import judged as judge
from disque_spark.audit.gaps import FOR_EVER, Gap
from disque_spark.audit.rules import Rules
from packages.spark.tests.support.judged_jobs import (
    ADDED,
    END,
    NODES,
    RULES,
    UNQUEUED,
    A,
    B,
    C,
    Step,
    deciding,
    findings,
    job_table,
    judged,
    never,
)


def test_nothing_is_wrong_with_a_job_that_is_a_lease() -> None:
    acked: list[Step] = [(1000, A, "added:"), (2000, A, "acked:client")]
    assert judged(acked) != set()
    assert judged(acked, queue="spark-leases/orders") == set()
    assert judged(ADDED, queue="spark-leases/orders") == set()
    assert judged(UNQUEUED, queue="spark-leases") == never(None)


def test_of_a_job_that_was_made_on_a_day_that_was_dropped_only_deliveries_are_judged() -> None:
    cut = Logs(NODES, (0, 0, 0), END, cut=True)
    for end in ("acked:client", "expired:", "dequeued:command"):
        late: list[Step] = [(1000, A, end)]
        assert findings(late, cut._replace(cut=False))
        assert findings(late, cut) == []
        assert findings([(900, A, "added:"), *late], cut)
    assert findings([(1000, A, "delivered:")], cut, retry=10)


# ---- never delivered ----------------------------------------------------------------------------


def test_a_job_of_which_the_log_has_everything_is_lost_without_a_doubt() -> None:
    assert judged(UNQUEUED) == never(None)
    assert judged(UNQUEUED, [Gap(A, 400, 900), Gap(B, 2000, 3000)]) == never(None)


def test_it_may_have_been_delivered_where_the_log_has_a_gap() -> None:
    assert judged(UNQUEUED, [Gap(A, 2000, 3000)]) == never("log-gap")
    assert judged(UNQUEUED, [Gap(A, 900, 1000)]) == never("log-gap")


def test_it_may_have_been_delivered_by_a_copy_that_nobody_speaks_of() -> None:
    gap = [Gap(C, 2000, 3000)]
    copied = [*ADDED, (999, B, "copied:"), (1001, A, "dequeued:command")]
    assert judged(copied, gap, copies=2) == never(None)
    assert judged(copied, gap, copies=3) == never("log-gap")


def test_it_may_have_been_delivered_by_a_node_that_does_not_say_that_it_got_it() -> None:
    given = [*UNQUEUED, (1500, A, "exported:")]
    assert judged(given, [Gap(C, 1400, 3000)]) == never("log-gap")


def test_it_may_be_with_a_node_whose_log_is_not_here() -> None:
    missing = [Gap(C, 0, FOR_EVER)]
    assert judged(UNQUEUED, missing) == never(None)
    assert judged(UNQUEUED, missing, copies=2) == never("log-missing")
    for_others: list[Step] = [(1000, A, "replicated:"), (1000, A, "added:")]
    assert judged(for_others, missing, copies=1) == never("log-missing")
    given: list[Step] = [*UNQUEUED, (1500, A, "exported:"), (1600, A, "working:")]
    assert judged(given, missing) == never("log-missing")
    there_and_back: list[Step] = [*given, (1700, A, "imported:"), (1700, A, "queued:import")]
    assert judged(there_and_back, missing) == set()
    assert judged([(1000, B, "copied:")], missing) == set()
    assert judged([(1000, B, "imported:")], [Gap(A, 0, FOR_EVER)]) == never("log-missing")


def test_somebody_may_have_deleted_it_where_the_log_has_a_gap() -> None:
    deleted = [*UNQUEUED, (1500, A, "deleted:peer")]
    assert judged(deleted) == never(None)
    assert judged(deleted, [Gap(C, 1400, 3000)]) == never("log-gap")


def test_a_node_that_is_silent_at_the_end_may_have_delivered_it() -> None:
    assert judged(UNQUEUED, [Gap(A, END - 61_000, FOR_EVER)]) == never("log-end")
    # All logs end at about the same time.
    assert judged(UNQUEUED, [Gap(A, END - 1000, FOR_EVER)]) == never(None)


@pytest.mark.parametrize("kind", ["deleted:given-up", "deleted:command"])
def test_a_job_that_was_ended_is_not_lost(kind: str) -> None:
    assert judged([*UNQUEUED, (1500, A, kind)]) == set()


def test_copies_of_a_job_that_was_refused_are_not_lost() -> None:
    copies: list[Step] = [(1000, B, "copied:"), (5000, B, "queued:retry")]
    assert judged(copies) == set()


def test_copies_of_a_job_whose_producer_may_know_of_it_may_be_lost() -> None:
    copies: list[Step] = [(1000, B, "copied:")]
    assert judged(copies, [Gap(A, 900, 3000)]) == never("log-gap")


def test_an_end_without_a_beginning_is_in_doubt() -> None:
    assert judged([(1000, B, "expired:")]) == {("expired-undelivered", "log-gap")}


def test_a_job_that_expired_may_have_been_delivered_before_where_the_log_has_a_gap() -> None:
    expired = [*UNQUEUED, (5000, A, "expired:")]
    assert judged(expired) == {("expired-undelivered", None)}
    assert judged(expired, [Gap(A, 2000, 3000)]) == {("expired-undelivered", "log-gap")}


# ---- delivered and never done --------------------------------------------------------------------

TAKEN = [*ADDED, (2000, A, "delivered:")]
AGAIN: list[Step] = [*TAKEN, (32_000, A, "queued:retry")]


def test_a_job_that_is_not_queued_again_when_its_retry_is_over_is_lost() -> None:
    assert judged(TAKEN, retry=30) == {("not-requeued", None)}
    assert judged(TAKEN, [Gap(A, 2500, 3000)], retry=30) == {("not-requeued", "log-gap")}
    assert judged(TAKEN, [Gap(B, 2500, 3000)], retry=30) == {("not-requeued", None)}
    assert judged(TAKEN, [Gap(A, 30_000, FOR_EVER)], retry=30) == {("not-requeued", "log-end")}


def test_a_job_that_was_taken_shortly_before_the_log_ends_may_be_done_yet() -> None:
    assert judged(TAKEN, retry=938) == set()
    assert judged(TAKEN, retry=937) == {("not-requeued", None)}
    assert judged([*ADDED, (END - 59_000, A, "delivered:")], retry=0) == set()
    assert judged([*TAKEN, (80_000, A, "working:")], retry=900) == set()


def test_a_job_that_comes_back_and_is_never_acknowledged_is_found() -> None:
    late: list[Step] = [*TAKEN, (153_000, A, "queued:retry")]
    assert judged(late, retry=30) == {("never-acknowledged", None)}
    again: list[Step] = [*TAKEN, (END - 20_000, A, "queued:retry"), (END - 9_000, A, "delivered:")]
    assert ("never-acknowledged", None) in judged(again, retry=30)
    assert judged(late, retry=31) == set()
    elsewhere: list[Step] = [*TAKEN, (153_000, B, "queued:retry")]
    assert judged(elsewhere, retry=30) == {("never-acknowledged", None)}


def test_patience_says_when_a_job_is_too_old_whatever_its_retry() -> None:
    def kinds(patience: int, steps: Sequence[Step], retry: int) -> set[str]:
        rules = Rules(settled=60, patience=patience)
        return {
            found.kind for found in findings(steps, Logs(NODES, (0, 0, 0), END), rules, retry=retry)
        }

    # RETRY is not over yet, while three times RETRY is.
    assert kinds(938, TAKEN, 5000) == set()
    assert kinds(937, TAKEN, 5000) == {"never-acknowledged"}
    late: list[Step] = [*TAKEN, (163_000, A, "queued:retry")]
    assert kinds(101, late, 30) == set()
    assert kinds(100, late, 30) == {"never-acknowledged"}
    assert kinds(938, TAKEN, 0) == set()
    assert kinds(937, TAKEN, 0) == {"lost-with-worker"}
    # A job whose RETRY is over and that no node has queued again is lost, not late.
    assert kinds(5000, TAKEN, 30) == {"not-requeued"}


def test_a_finding_that_is_in_doubt_names_the_logs_that_would_decide() -> None:
    late: list[Step] = [*TAKEN, (153_000, B, "queued:retry")]
    gap_a, gap_b, no_c = Gap(A, 2500, 3000), Gap(B, 2500, FOR_EVER), Gap(C, 0, FOR_EVER)
    assert deciding(UNQUEUED, []) == {("never-delivered", "")}
    assert deciding(UNQUEUED, [gap_a, gap_b]) == {("never-delivered", "0")}
    copied = [*UNQUEUED, (999, B, "copied:")]
    assert deciding(copied, [gap_a, gap_b], copies=2) == {("never-delivered", "01")}
    assert deciding(copied, [gap_a, no_c], copies=3) == {("never-delivered", "2")}
    assert deciding([*UNQUEUED, (1500, A, "exported:")], [no_c]) == {("never-delivered", "2")}
    expired: Step = (9000, A, "expired:")
    assert deciding([*UNQUEUED, expired], [gap_a]) == {("expired-undelivered", "0")}
    assert deciding([*TAKEN, expired], [gap_a], retry=30) == {("expired-unacknowledged", "0")}
    assert deciding(TAKEN, [gap_a], retry=30) == {("not-requeued", "0")}
    assert deciding(TAKEN, [gap_a], retry=0) == {("lost-with-worker", "0")}
    assert deciding(late, [gap_a], retry=30) == {("never-acknowledged", "0")}
    nobodys: list[Step] = [(9000, A, "acked:client")]
    assert deciding(nobodys, [gap_b]) == {("acknowledged-unseen", "1")}
    assert deciding(nobodys, [gap_b, no_c]) == {("acknowledged-unseen", "2")}
    twice: list[Step] = [*TAKEN, (9000, A, "delivered:"), (9001, A, "acked:client")]
    assert deciding(twice, [gap_a, gap_b]) == {("delivered-twice", "0")}
    died: list[Step] = [*TAKEN, (3000, A, "dead:peer")]
    assert deciding(died, [no_c]) == {("dead", "2")}
    letter: list[Step] = [(1000, A, "added:"), (1000, A, "queued:death")]
    assert deciding(letter, [gap_a]) == {("letter-waiting", "0")}


def test_a_job_that_was_handed_back_is_waiting() -> None:
    """Even if all of it happened within one ms."""
    given_back: list[Step] = [*TAKEN, (2000, A, "nacked:"), (2000, A, "queued:nack")]
    assert judged(given_back, retry=30) == set()


def test_a_worker_that_dies_takes_a_job_along_that_comes_once() -> None:
    assert judged(TAKEN, retry=0) == {("lost-with-worker", None)}
    assert judged(TAKEN, [Gap(A, 2500, 3000)], retry=0) == {("lost-with-worker", "log-gap")}


def test_a_copy_that_was_one_too_many_is_not_the_end_of_its_job() -> None:
    """A copy that arrived when there were enough is deleted again before anybody gets the job."""
    surplus: list[Step] = [(1500, B, "copied:"), (1500, B, "deleted:peer")]
    for retry, kind in ((0, "lost-with-worker"), (30, "not-requeued")):
        assert judged([*surplus, *TAKEN], retry=retry) == {(kind, None)}
    # A client may have had it deleted at a node whose log does not say so.
    gap = [Gap(C, 1200, 1400)]
    assert judged([*surplus, *TAKEN], gap, retry=0) == {("lost-with-worker", "log-gap")}
    # A job that was delivered and then deleted was done.
    assert judged([*TAKEN, (5000, B, "deleted:peer")], retry=0) == set()


def test_a_job_that_expires_when_somebody_has_it_was_not_done() -> None:
    expired: list[Step] = [*TAKEN, (9000, A, "expired:")]
    for retry in (0, 30):
        assert judged(expired, retry=retry) == {("expired-unacknowledged", None)}
    gap = [Gap(A, 2500, 3000)]
    assert judged(expired, gap, retry=30) == {("expired-unacknowledged", "log-gap")}


def test_a_job_that_expires_while_its_node_is_down_was_not_lost_but_expired() -> None:
    assert judged(TAKEN, retry=30, ttl=20) == {("expired-unacknowledged", None)}
    assert judged(TAKEN, retry=30, ttl=40) == {("not-requeued", None)}


@pytest.mark.parametrize(
    "kind", ["acked:client", "acked:peer", "deleted:collected", "deleted:peer", "deleted:fastack"]
)
def test_a_job_that_somebody_knows_to_be_done_is_done(kind: str) -> None:
    for retry in (0, 30):
        assert judged([*TAKEN, (9000, A, kind)], retry=retry) == set()


def test_a_job_of_which_no_line_says_its_retry_is_in_doubt() -> None:
    assert judged([(2000, A, "delivered:")]) == {("never-acknowledged", "log-gap")}


@pytest.mark.parametrize("kind", ["acked:client", "deleted:fastack"])
def test_an_acknowledge_without_a_delivery_is_found(kind: str) -> None:
    done: list[Step] = [*ADDED, (9000, A, kind)]
    assert judged(done) == {("acknowledged-unseen", None)}
    assert judged(done, [Gap(A, 2000, 3000)]) == {("acknowledged-unseen", "log-gap")}
    nobodys: list[Step] = [(9000, A, kind), (9002, A, "deleted:collected")]
    assert judged(nobodys) == {("acknowledged-unseen", "unknown-job")}
    assert judged(nobodys, [Gap(B, 1, 2)]) == {("acknowledged-unseen", "log-gap")}


# ---- pauses -------------------------------------------------------------------------------------

PAUSED: list[Step] = [*TAKEN, (2000, A, "nacked:"), (2000, A, "paused:nack")]


@pytest.mark.parametrize("why", ["nack", "retry", "client", "queue"])
def test_a_job_that_pauses_is_not_lost_before_its_pause_is_over(why: str) -> None:
    steps: list[Step] = [*TAKEN, (2000, A, f"paused:{why}")]
    # By then, the node has queued it, or another node has after its RETRY.
    until = END - 90_000
    assert judged(steps, retry=30, until=until) == set()
    assert judged(steps, retry=30, until=until - 1) == {("not-requeued", None)}
    assert judged([*ADDED, (1500, A, f"paused:{why}")], until=END) == set()
    assert judged([*ADDED, (1500, A, f"paused:{why}")], until=30_000) == never(None)


def test_a_job_is_not_late_while_it_pauses_unless_patience_says_so() -> None:
    logs = Logs(NODES, (0, 0, 0), END)
    assert findings(PAUSED, logs, retry=30, until=END) == []
    (found,) = findings(PAUSED, logs, Rules(settled=60, patience=9), retry=30, until=END)
    assert found.kind == "never-acknowledged"


def test_a_pause_ends_with_what_comes_after_it() -> None:
    queued = [*PAUSED, (3000, B, "queued:nack")]
    assert judged(queued, retry=30, until=END) == set()
    again: list[Step] = [*queued, (4000, B, "delivered:")]
    assert ("not-requeued", None) in judged(again, retry=30, until=3000)
    assert judged([*PAUSED, (3000, B, "expired:")], retry=30, until=END) == {
        ("expired-unacknowledged", None)
    }


def test_a_job_that_would_have_expired_in_its_pause_has_expired() -> None:
    assert judged(PAUSED, retry=30, ttl=20, until=END) == {("expired-unacknowledged", None)}


def test_jobs_of_an_older_table_have_no_pauses() -> None:
    (batch,) = job_table(TAKEN, retry=30).drop(["until"]).combine_chunks().to_batches()
    assert [one.kind for one in judge(batch, RULES, Logs(NODES, (0, 0, 0), END))[0]] == [
        "not-requeued"
    ]
