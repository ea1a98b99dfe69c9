"""What single jobs are found with, and why."""

from collections.abc import Sequence

import pyarrow as pa
import pytest

from disque_trio.spark.audit.classify import Finding, Logs
from disque_trio.spark.audit.clocks import Clocks
from disque_trio.spark.audit.findings import clock_findings, found_in
from disque_trio.spark.audit.gaps import FOR_EVER, Gap
from disque_trio.spark.audit.jobs import FACTS, fold, jobs_of
from disque_trio.spark.audit.rules import Rules
from disque_trio.spark.audit.trace import CODE_BITS, CODES, TIME_SHIFT

NODES = ["a" * 40, "b" * 40, "c" * 40]
A, B, C = range(3)
ID = f"D-{NODES[A][:8]}-job-05a1"
END = 1_000_000  # ms
RULES = Rules(settled=60, tolerance=100)

Step = tuple[int, int, str]  # time, node, what
Found = set[tuple[str, str | None]]

ADDED: list[Step] = [(1000, A, "added:"), (1000, A, "queued:add")]


def job_table(steps: Sequence[Step], queue: str = "q", **facts: int) -> pa.Table:
    """The job as a row of the table."""
    columns: dict[str, object] = {
        "id": [ID] * len(steps),
        "queue": [queue] * len(steps),
        "group": pa.nulls(len(steps), pa.string()),
        "event": [at << TIME_SHIFT | node << CODE_BITS | CODES[what] for at, node, what in steps],
    }
    for name in FACTS:
        columns[name] = pa.array([facts.get(name)] * len(steps), pa.int64())
    return jobs_of(fold(pa.table(columns)), NODES)


def job_row(steps: Sequence[Step]) -> dict[str, object]:
    (row,) = job_table(steps).to_pylist()
    return dict(row)


def judged(
    steps: Sequence[Step],
    gaps: Sequence[Gap] = (),
    doubt: int = 0,
    offsets: Sequence[int] = (0, 0, 0),
    queue: str = "q",
    **facts: int,
) -> Found:
    """Kind and reason of all that is found."""
    doubts = [[0 if one == other else doubt for one in range(3)] for other in range(3)]
    found = findings(steps, Logs(NODES, offsets, END, gaps, doubts), queue=queue, **facts)
    assert all(finding.job == ID for finding in found)
    return {(finding.kind, finding.reason) for finding in found}


def findings(
    steps: Sequence[Step], logs: Logs, rules: Rules = RULES, queue: str = "q", **facts: int
) -> list[Finding]:
    (batch,) = job_table(steps, queue, **facts).combine_chunks().to_batches()
    return found_in(batch, rules, logs)


def deciding(steps: Sequence[Step], gaps: Sequence[Gap], **facts: int) -> set[tuple[str, str]]:
    """Kind of what is found, and the numbers of the nodes whose logs would decide; the detail
    names them."""
    found = findings(steps, Logs(NODES, (0, 0, 0), END, gaps), **facts)
    for finding in found:
        assert all(node[:8] in finding.detail for node in finding.would_decide)
        assert ("would decide" in finding.detail) == bool(finding.would_decide)
    return {
        (finding.kind, "".join(str(NODES.index(node)) for node in finding.would_decide))
        for finding in found
    }


def never(reason: str | None) -> Found:
    return {("never-delivered", reason)}


def test_nothing_is_wrong_with_a_job_that_is_a_lease() -> None:
    acked: list[Step] = [(1000, A, "added:"), (2000, A, "acked:client")]
    assert judged(acked) != set()
    assert judged(acked, queue="spark-leases/orders") == set()
    assert judged(ADDED, queue="spark-leases/orders") == set()
    assert judged(ADDED, queue="spark-leases") == never(None)


def test_of_a_job_that_was_made_on_a_day_that_was_dropped_only_deliveries_are_judged() -> None:
    cut = Logs(NODES, (0, 0, 0), END, cut=True)
    for end in ("acked:client", "expired:", "queued:retry"):
        late: list[Step] = [(1000, A, end)]
        assert findings(late, cut._replace(cut=False))
        assert findings(late, cut) == []
        assert findings([(900, A, "added:"), *late], cut)
    assert findings([(1000, A, "delivered:")], cut, retry=10)


# ---- never delivered ----------------------------------------------------------------------------


def test_a_job_of_which_the_log_has_everything_is_lost_without_a_doubt() -> None:
    assert judged(ADDED) == never(None)
    assert judged(ADDED, [Gap(A, 400, 900), Gap(B, 2000, 3000)]) == never(None)


def test_it_may_have_been_delivered_where_the_log_has_a_gap() -> None:
    assert judged(ADDED, [Gap(A, 2000, 3000)]) == never("log-gap")
    assert judged(ADDED, [Gap(A, 900, 1000)]) == never("log-gap")


def test_it_may_have_been_delivered_by_a_copy_that_nobody_speaks_of() -> None:
    gap = [Gap(C, 2000, 3000)]
    copied = [*ADDED, (999, B, "copied:")]
    assert judged(copied, gap, copies=2) == never(None)
    assert judged(copied, gap, copies=3) == never("log-gap")


def test_it_may_have_been_delivered_by_a_node_that_does_not_say_that_it_got_it() -> None:
    given = [*ADDED, (1500, A, "exported:")]
    assert judged(given, [Gap(C, 1400, 3000)]) == never("log-gap")


def test_it_may_be_with_a_node_whose_log_is_not_here() -> None:
    missing = [Gap(C, 0, FOR_EVER)]
    assert judged(ADDED, missing) == never(None)
    assert judged(ADDED, missing, copies=2) == never("log-missing")
    for_others: list[Step] = [(1000, A, "replicated:"), (1000, A, "added:")]
    assert judged(for_others, missing, copies=1) == never("log-missing")
    given: list[Step] = [*ADDED, (1500, A, "exported:"), (1600, A, "working:")]
    assert judged(given, missing) == never("log-missing")
    there_and_back: list[Step] = [*given, (1700, A, "imported:"), (1700, A, "queued:import")]
    assert judged(there_and_back, missing) == never(None)
    assert judged([(1000, B, "copied:")], missing) == set()
    assert judged([(1000, B, "imported:")], [Gap(A, 0, FOR_EVER)]) == never("log-missing")


def test_somebody_may_have_deleted_it_where_the_log_has_a_gap() -> None:
    deleted = [*ADDED, (1500, A, "deleted:peer")]
    assert judged(deleted) == never(None)
    assert judged(deleted, [Gap(C, 1400, 3000)]) == never("log-gap")


def test_a_node_that_is_silent_at_the_end_may_have_delivered_it() -> None:
    assert judged(ADDED, [Gap(A, END - 61_000, FOR_EVER)]) == never("log-end")
    # All logs end at some time, and that is about the same time.
    assert judged(ADDED, [Gap(A, END - 1000, FOR_EVER)]) == never(None)


@pytest.mark.parametrize("kind", ["deleted:given-up", "deleted:command"])
def test_a_job_that_was_ended_is_not_lost(kind: str) -> None:
    assert judged([*ADDED, (1500, A, kind)]) == set()


def test_copies_of_a_job_that_was_refused_are_not_lost() -> None:
    copies: list[Step] = [(1000, B, "copied:"), (5000, B, "queued:retry")]
    assert judged(copies) == set()


def test_copies_of_a_job_whose_producer_may_know_of_it_may_be_lost() -> None:
    copies: list[Step] = [(1000, B, "copied:")]
    assert judged(copies, [Gap(A, 900, 3000)]) == never("log-gap")


def test_an_end_without_a_beginning_is_in_doubt() -> None:
    assert judged([(1000, B, "expired:")]) == {("expired-undelivered", "log-gap")}


def test_a_job_that_expired_may_have_been_delivered_before_where_the_log_has_a_gap() -> None:
    expired = [*ADDED, (5000, A, "expired:")]
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
    assert judged(AGAIN, retry=30) == {("never-acknowledged", None)}
    again: list[Step] = [*AGAIN, (END - 20_000, A, "queued:retry"), (END - 9_000, A, "delivered:")]
    assert ("never-acknowledged", None) in judged(again, retry=30)
    assert judged(AGAIN, retry=313) == set()
    assert judged(AGAIN, retry=312) == {("never-acknowledged", None)}
    elsewhere: list[Step] = [*TAKEN, (32_000, B, "queued:retry")]
    assert judged(elsewhere, retry=30) == {("never-acknowledged", None)}


def test_patience_says_when_a_job_is_too_old_whatever_its_retry() -> None:
    def kinds(patience: int, steps: Sequence[Step], retry: int) -> set[str]:
        rules = Rules(settled=60, patience=patience)
        return {
            found.kind for found in findings(steps, Logs(NODES, (0, 0, 0), END), rules, retry=retry)
        }

    # RETRY is not over yet, and three times RETRY is long ago.
    for steps, retry in ((TAKEN, 5000), (AGAIN, 30)):
        assert kinds(938, steps, retry) == set()
        assert kinds(937, steps, retry) == {"never-acknowledged"}
    assert kinds(938, TAKEN, 0) == set()
    assert kinds(937, TAKEN, 0) == {"lost-with-worker"}
    # A job whose RETRY is over and that nobody has queued again is lost, not late.
    assert kinds(5000, TAKEN, 30) == {"not-requeued"}


def test_a_finding_that_is_in_doubt_names_the_logs_that_would_decide() -> None:
    gap_a, gap_b, no_c = Gap(A, 2500, 3000), Gap(B, 2500, FOR_EVER), Gap(C, 0, FOR_EVER)
    assert deciding(ADDED, []) == {("never-delivered", "")}
    assert deciding(ADDED, [gap_a, gap_b]) == {("never-delivered", "0")}
    copied = [*ADDED, (999, B, "copied:")]
    assert deciding(copied, [gap_a, gap_b], copies=2) == {("never-delivered", "01")}
    assert deciding(copied, [gap_a, no_c], copies=3) == {("never-delivered", "2")}
    assert deciding([*ADDED, (1500, A, "exported:")], [no_c]) == {("never-delivered", "2")}
    expired: Step = (9000, A, "expired:")
    assert deciding([*ADDED, expired], [gap_a]) == {("expired-undelivered", "0")}
    assert deciding([*TAKEN, expired], [gap_a], retry=30) == {("expired-unacknowledged", "0")}
    assert deciding(TAKEN, [gap_a], retry=30) == {("not-requeued", "0")}
    assert deciding(TAKEN, [gap_a], retry=0) == {("lost-with-worker", "0")}
    assert deciding(AGAIN, [gap_a], retry=30) == {("never-acknowledged", "0")}
    nobodys: list[Step] = [(9000, A, "acked:client")]
    assert deciding(nobodys, [gap_b]) == {("acknowledged-unseen", "1")}
    assert deciding(nobodys, [gap_b, no_c]) == {("acknowledged-unseen", "2")}
    twice: list[Step] = [*TAKEN, (9000, A, "delivered:"), (9001, A, "acked:client")]
    assert deciding(twice, [gap_a, gap_b]) == {("delivered-twice", "0")}
    died: list[Step] = [*TAKEN, (3000, A, "dead:peer")]
    assert deciding(died, [no_c]) == {("dead", "2")}
    letter: list[Step] = [(1000, A, "added:"), (1000, A, "queued:death")]
    assert deciding(letter, [gap_a]) == {("letter-waiting", "0")}


def test_what_was_handed_back_waits() -> None:
    """Also when all of it was in one ms."""
    given_back: list[Step] = [*TAKEN, (2000, A, "nacked:"), (2000, A, "queued:nack")]
    assert judged(given_back, retry=30) == {("never-acknowledged", None)}


def test_a_worker_that_dies_takes_a_job_along_that_comes_once() -> None:
    assert judged(TAKEN, retry=0) == {("lost-with-worker", None)}
    assert judged(TAKEN, [Gap(A, 2500, 3000)], retry=0) == {("lost-with-worker", "log-gap")}


def test_a_copy_that_was_one_too_many_is_not_the_end_of_its_job() -> None:
    """One that came when there were enough is deleted again, before anybody got the job."""
    surplus: list[Step] = [(1500, B, "copied:"), (1500, B, "deleted:peer")]
    for retry, kind in ((0, "lost-with-worker"), (30, "not-requeued")):
        assert judged([*surplus, *TAKEN], retry=retry) == {(kind, None)}
    # A client may have had it deleted where the log does not say so.
    gap = [Gap(C, 1200, 1400)]
    assert judged([*surplus, *TAKEN], gap, retry=0) == {("lost-with-worker", "log-gap")}
    # What is deleted when it was delivered was done.
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


# ---- delivered after the acknowledge ------------------------------------------------------------

DONE = [*ADDED, (2000, A, "delivered:"), (3000, A, "acked:client")]
LATE: list[Step] = [*DONE, (2500, B, "queued:retry"), (3150, B, "delivered:")]


def test_a_node_that_has_not_heard_delivers_after_the_acknowledge() -> None:
    assert judged(LATE) == {("delivered-after-ack", None)}


def test_what_clocks_do_not_tell_is_not_after_the_acknowledge() -> None:
    assert judged(LATE, doubt=200) == {("delivered-twice", "retry")}
    assert judged(LATE, offsets=(0, 150, 0)) == {("delivered-twice", "retry")}
    assert judged(LATE, offsets=(0, 0, 900)) == {("delivered-after-ack", None)}


def test_a_node_that_had_heard_must_not_deliver() -> None:
    steps: list[Step] = [*DONE, (3010, B, "acked:peer"), (4000, B, "delivered:")]
    assert judged(steps) == {("delivered-after-ack", "heard")}


def test_a_node_that_died_may_have_forgotten_that_it_had_heard() -> None:
    steps: list[Step] = [*DONE, (3010, B, "acked:peer"), (4000, B, "delivered:")]
    assert judged(steps, [Gap(B, 3010, 3800)]) == {("delivered-after-ack", "restart")}


def test_a_node_gets_a_job_back_from_one_that_has_not_heard() -> None:
    steps: list[Step] = [
        *[*ADDED, (2000, A, "delivered:"), (3000, B, "acked:client")],
        *[(3900, A, "queued:retry"), (3950, A, "exported:"), (4000, B, "imported:")],
        *[(4000, B, "queued:import"), (4000, B, "delivered:")],
    ]
    assert judged(steps) == {("delivered-after-ack", None)}


# ---- delivered twice ----------------------------------------------------------------------------


def again(steps: Sequence[Step], gaps: Sequence[Gap] = (), **facts: int) -> Found:
    """Why it was delivered again; that nobody acknowledges it in the end is not the matter."""
    return {found for found in judged(steps, gaps, **facts) if found[0] == "delivered-twice"}


def test_what_brought_a_job_back_is_the_reason_wherever_it_went_then() -> None:
    steps: list[Step] = [
        *[*ADDED, (2000, A, "delivered:"), (2100, A, "nacked:"), (2100, A, "queued:nack")],
        *[(2200, A, "exported:"), (2201, B, "imported:"), (2201, B, "queued:import")],
        *[(2300, B, "exported:"), (2301, C, "imported:"), (2301, C, "queued:import")],
        (2400, C, "delivered:"),
    ]
    assert again(steps) == {("delivered-twice", "nack")}


def test_a_delivery_elsewhere_that_seems_to_be_the_first_is_not() -> None:
    # The clock of B is behind, by less than clocks may differ.
    steps: list[Step] = [
        *[*ADDED, (1010, A, "delivered:"), (1020, A, "nacked:"), (1020, A, "queued:nack")],
        *[(1030, A, "exported:"), (990, B, "imported:"), (990, B, "queued:import")],
        (1000, B, "delivered:"),
    ]
    assert again(steps) == {("delivered-twice", "nack")}


def test_a_job_that_two_nodes_had_in_their_queues() -> None:
    steps: list[Step] = [*ADDED, (4000, B, "queued:retry"), (5000, A, "delivered:")]
    assert again([*steps, (6000, B, "delivered:")]) == {("delivered-twice", "partition")}
    steps = [*ADDED, (3000, B, "queued:retry"), (3100, B, "delivered:"), (5000, A, "delivered:")]
    assert again(steps) == {("delivered-twice", "partition")}


def test_nothing_but_the_node_itself_brought_it_back() -> None:
    steps: list[Step] = [*ADDED, (2000, A, "delivered:"), (9000, A, "delivered:")]
    assert again(steps) == {("delivered-twice", "restart")}
    assert again(steps, [Gap(A, 2000, 8000)]) == {("delivered-twice", "log-gap")}


def test_within_a_millisecond_a_job_may_leave_a_queue_and_come_back() -> None:
    steps: list[Step] = [
        *[*ADDED, (2000, A, "delivered:"), (3000, A, "queued:retry"), (3030, B, "queued:retry")],
        *[(3030, B, "exported:"), (3030, A, "dequeued:peer"), (3030, A, "imported:")],
        *[(3030, A, "queued:import"), (3100, A, "delivered:")],
    ]
    assert again(steps, retry=1) <= {
        ("delivered-twice", "retry"),
        ("delivered-twice", "partition"),
    }


def test_within_a_millisecond_a_job_may_come_be_delivered_and_be_given_back() -> None:
    steps: list[Step] = [
        *[*ADDED, (1001, A, "exported:"), (1002, B, "imported:"), (1002, B, "queued:import")],
        *[(1002, B, "delivered:"), (1002, B, "nacked:"), (1002, B, "queued:nack")],
        *[(1002, B, "exported:"), (1003, C, "imported:"), (1003, C, "queued:import")],
        (9000, C, "delivered:"),
    ]
    assert again(steps, retry=60) == {("delivered-twice", "nack")}


def test_a_queue_that_was_lost_with_a_node_does_not_count() -> None:
    steps: list[Step] = [
        *[*ADDED, (1500, B, "queued:retry"), (1600, B, "delivered:")],
        *[(9000, A, "queued:retry"), (9100, A, "delivered:")],
    ]
    assert again(steps, retry=2) == {("delivered-twice", "retry")}


# ---- clocks -------------------------------------------------------------------------------------


def test_clocks_are_found_that_are_certainly_apart() -> None:
    clocks = Clocks([0, 520, -700], [[0, 30, 150], [30, 0, 150], [150, 150, 0]], [])
    found = clock_findings(clocks, Rules(skew=500), NODES)
    assert [(finding.reason, finding.nodes) for finding in found] == [
        (None, [NODES[A], NODES[C]]),
        (None, [NODES[B], NODES[C]]),
    ]
    assert found[0].detail == "the clock of the second is 700 ms behind, give or take 150 ms"


def test_a_clock_that_was_set_is_found() -> None:
    clocks = Clocks([0, 0, 0], [[0, 900, 5], [900, 0, 5], [5, 5, 0]], [(0, 1)])
    assert clock_findings(clocks, Rules(skew=2000), NODES) == []
    (found,) = clock_findings(clocks, Rules(skew=1500), NODES)
    assert (found.reason, found.nodes) == ("set", [NODES[A], NODES[B]])


# ---- jobs that end in another way ---------------------------------------------------------------

DELIVERED: Step = (2000, A, "delivered:")


@pytest.mark.parametrize("why", ["attempts", "expired", "refused"])
def test_a_job_that_died_is_done_and_says_why(why: str) -> None:
    end: Step = (3000, A, f"dead:{why}")
    assert judged([*ADDED, DELIVERED, end], retry=10, ttl=100) == {("dead", why)}
    assert judged([*ADDED, end], retry=10, ttl=100) == {("dead", why)}


def test_a_job_that_expired_and_died_of_it_is_no_expired_one() -> None:
    end: list[Step] = [(3000, A, "dead:expired"), (3000, A, "expired:"), (4000, B, "expired:")]
    assert judged([*ADDED, *end], retry=10, ttl=2) == {("dead", "expired")}
    assert judged([*ADDED, DELIVERED, *end], retry=10, ttl=2) == {("dead", "expired")}


def test_where_only_others_say_that_a_job_died_the_reason_is_unknown() -> None:
    steps: list[Step] = [*ADDED, (1100, B, "copied:"), DELIVERED, (3000, B, "dead:peer")]
    assert judged(steps, copies=2, retry=10) == {("dead", "peer")}


@pytest.mark.parametrize("who", ["client", "peer"])
def test_a_cancelled_job_is_no_finding(who: str) -> None:
    end: Step = (3000, A, f"cancelled:{who}")
    assert judged([*ADDED, end]) == set()
    assert judged([*ADDED, DELIVERED, end], retry=10) == set()
    assert judged([(2000, A, "updated:client"), *ADDED, DELIVERED, end], retry=10) == set()


@pytest.mark.parametrize("how", ["cancelled:client", "dead:refused", "cancelled:peer"])
def test_who_delivers_a_job_that_it_knows_to_be_over_is_found(how: str) -> None:
    steps: list[Step] = [*ADDED, (1500, A, how), DELIVERED]
    assert ("delivered-after-ack", "heard") in judged(steps)


def test_a_dead_letter_that_nobody_takes_waits() -> None:
    letter: list[Step] = [(1000, A, "added:"), (1000, A, "queued:death")]
    assert judged(letter) == {("letter-waiting", None)}
    assert judged(letter, [Gap(A, 2000, 3000)]) == {("letter-waiting", "log-gap")}
    taken = [*letter, (2000, A, "delivered:"), (2001, A, "acked:client")]
    assert judged(taken) == set()
    expired = [*letter, (2000, A, "expired:")]
    assert judged(expired, ttl=1) == {("expired-undelivered", None)}


def test_a_letter_that_two_nodes_made_is_delivered_twice_by_a_partition() -> None:
    letter: list[Step] = [
        (1000, A, "queued:death"), (1000, B, "queued:death"), (1000, A, "added:"),
        (2000, A, "delivered:"), (5000, B, "delivered:"), (6000, A, "acked:client"),
    ]  # fmt: skip
    assert judged(letter) == {("delivered-twice", "partition")}


def test_a_redriven_job_is_delivered_again_since_it_was_redriven() -> None:
    steps: list[Step] = [
        *ADDED, DELIVERED, (3000, A, "queued:redrive"), (4000, A, "delivered:"),
        (5000, A, "acked:client"),
    ]  # fmt: skip
    assert judged(steps) == {("delivered-twice", "redrive")}


@pytest.mark.parametrize(
    ("how", "ended"),
    [("acked:client", "acked"), ("dead:attempts", "dead"), ("cancelled:client", "cancelled")],
)
def test_how_a_job_ended_is_in_the_table(how: str, ended: str) -> None:
    steps: list[Step] = [*ADDED, DELIVERED, (3000, A, how)]
    row = job_row(steps)
    assert (row["ended"], row["complete"]) == (ended, True)
    assert row["ended_at"] == row["last_event"]
    again = job_row([*steps, (3000, A, "deleted:collected"), (3001, A, "expired:")])
    assert again["ended"] == ended
