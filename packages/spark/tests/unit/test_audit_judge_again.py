"""Findings about deliveries that should not have happened, ends of jobs, and clocks."""

from collections.abc import Sequence

import pytest

from disque_spark.audit.clocks import Clocks
from disque_spark.audit.evidence import Logs
from disque_spark.audit.findings import clock_findings
from disque_spark.audit.gaps import Gap
from disque_spark.audit.rules import Rules
from packages.spark.tests.support.judged_jobs import (
    ADDED,
    END,
    NODES,
    A,
    B,
    C,
    Found,
    Step,
    findings,
    job_row,
    judged,
)

# ---- delivered after the acknowledgement --------------------------------------------------------

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
    """Return why it was delivered again, ignoring that nobody acknowledges it in the end."""
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
    # The clock of B is behind by less than the tolerance.
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
    assert again(steps, [Gap(A, 2000, 8000)]) == {("delivered-twice", "log-gap")}
    # Only a node that was started in between can have done that.
    for node, at, reason in (
        *((A, 2500, "restart"), (A, 1500, "unknown"), (A, 9500, "unknown")),
        *((B, 2500, "unknown"), (A, 2000, "restart")),
    ):
        logs = Logs(NODES, (0, 0, 0), END, starts=[(B, 0), (node, at)])
        found = {(one.kind, one.reason) for one in findings([*steps, ACK], logs, retry=30)}
        assert found == {("delivered-twice", reason)}
    assert again(steps) == {("delivered-twice", "unknown")}


ACK: Step = (9500, A, "acked:client")


def test_a_line_that_is_there_twice_accuses_nobody() -> None:
    steps: list[Step] = [*ADDED, (2000, A, "delivered:"), (2000, A, "delivered:"), ACK]
    assert judged(steps, retry=30) == {("delivered-twice", "line-twice")}
    same_ms: list[Step] = [(1000, A, "delivered:"), (1000, A, "delivered:"), ACK]
    assert judged([*ADDED, *same_ms], retry=30) == {("delivered-twice", "line-twice")}
    copied = sorted([*steps, *steps], key=lambda step: step[0])
    assert judged(copied, retry=30) == {("delivered-twice", "line-twice")}
    # Within a millisecond, a client may hand it back and get it again.
    back: list[Step] = [(2000, A, "nacked:"), (2000, A, "queued:nack")]
    assert judged([*steps, *back], retry=30) == {("delivered-twice", "nack")}


def test_a_job_that_may_come_once_is_never_delivered_again_unless_a_client_wants_it() -> None:
    twice: list[Step] = [*ADDED, (2000, A, "delivered:"), (9000, A, "delivered:"), ACK]
    assert judged(twice, retry=0) == {("once-delivered-twice", "unknown")}
    line: list[Step] = [*ADDED, (2000, A, "delivered:"), (2000, A, "delivered:"), ACK]
    assert judged(line, retry=0) == {("once-delivered-twice", "line-twice")}
    for why in ("retry", "disconnect"):
        steps = [*twice, (5000, A, f"queued:{why}")]
        assert judged(steps, retry=0) == {("once-delivered-twice", why)}
    for why in ("nack", "enqueue"):
        steps = [*twice, (5000, A, f"queued:{why}")]
        assert judged(steps, retry=0) == {("delivered-twice", why)}
    gap = [Gap(A, 3000, 4000)]
    assert judged(twice, gap, retry=0) == {("once-delivered-twice", "log-gap")}
    late: list[Step] = [*ADDED, (2000, A, "delivered:"), (2500, A, "acked:client")]
    assert judged([*late, (9000, A, "delivered:")], retry=0) == {
        ("once-delivered-twice", "unknown"),
        ("delivered-after-ack", "heard"),
    }


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


# ---- jobs that end in other ways ----------------------------------------------------------------

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
