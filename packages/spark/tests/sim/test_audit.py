"""The audit of simulated event logs agrees with what the simulator knows."""

import os
from collections import Counter
from pathlib import Path

import pytest

from disque_spark.audit.clocks import UNKNOWN
from disque_spark.audit.rules import (
    AFTER_ACK,
    CLOCK_SKEW,
    DEAD,
    EXPIRED,
    EXPIRED_UNACKED,
    LOG_GAP,
    LOG_MISSING,
    NEVER_ACKED,
    NEVER_DELIVERED,
    NOT_REQUEUED,
    ONCE_TWICE,
    POISON,
    TWICE,
    UNSEEN_ACK,
    WAITING,
    WAITING_LETTER,
    WITH_WORKER,
    Rules,
)
from disque_trio.node.core.jobs.job import QUEUED
from packages.spark.tests.support.audited_logs import Audited, audited
from tests.simulator.clocks import EPOCH
from tests.simulator.events import MS, SECOND
from tests.simulator.oracle import JobRecord
from tests.simulator.plan import CALM, EXTENDED, SAFETY, make_plan, mode_of
from tests.simulator.world import World

RULES = Rules(settled=2)
SEEDS = int(os.environ.get("AUDIT_SEEDS", "16"))  # set it to test more than ``make test`` does
FIRST = 500
JUMPING = SEEDS // 5
BRIEF = 0.3  # otherwise few delivered jobs reach the end of their time to live
EARLY, LATE = 0, 1  # the logs after the last fault, and at the end
LITTLE = 400  # divides the drift of the clocks, which leaves 50 millionths


class Run:
    """A finished run of a cluster, and the audits of its logs."""

    def __init__(self, seed: int, directory: Path, steady: bool, extended: bool = False) -> None:
        mode = mode_of(seed)
        self.mode = EXTENDED if extended else SAFETY if mode == EXTENDED else mode
        plan = make_plan(seed, self.mode)
        if not extended:  # there, such jobs become dead letters, and are counted as these
            plan.brief = BRIEF
        if steady:
            plan.rates = [1_000_000 + (rate - 1_000_000) // LITTLE for rate in plan.rates]
        self.world = World(plan)
        self.world.steady_clocks = steady
        directory.mkdir()
        self.world.write_logs(directory)
        outcome = self.world.run()
        assert not outcome.problems, outcome.problems
        self.ends = (self.world.ended_work, self.world.ended)
        self.audits = [audited([directory / name], RULES) for name in ("early", "late")]
        self.whole = not any(machine.log.lost for machine in self.world.machines if machine.log)
        self.restarted = any(machine.incarnation > 1 for machine in self.world.machines)
        self.offsets = {
            machine.id.decode(): plan.offsets[machine.index] for machine in self.world.machines
        }

    def in_log(self, when: int, at: int, index: int) -> bool:
        """Return whether the logs of ``when`` have what machine ``index`` did at ``at`` (µs)."""
        log = self.world.machines[index].log
        assert log is not None
        saved, crashes = log.saved[when]
        return at < saved and not any(start <= at <= end for start, end in log.lost[:crashes])

    def acked(self, record: JobRecord) -> bool:
        """Return whether the job was acknowledged for certain.

        A node that has the job keeps every ACK. A node that does not have it forgets the ACK of
        an at-most-once job, and any ACK when it is leaving.
        """
        staying = [index for _, index in record.acked if index != self.world.plan.leaving]
        return record.retry > 0 and len(staying) > 0

    def deliveries(self, when: int, record: JobRecord) -> list[int]:
        """Return the times of the deliveries that are in the logs of ``when``."""
        return [at for at, index in record.sent if self.in_log(when, at, index)]

    def confirmed(self, when: int, record: JobRecord) -> bool:
        """Return whether the logs of ``when`` must show the job as confirmed."""
        made_by = record.id[2:10]
        (index,) = [one.index for one in self.world.machines if one.id.startswith(made_by)]
        return record.confirmed >= 0 and self.in_log(when, record.confirmed, index)

    def must_be_delivered(self, when: int, record: JobRecord) -> bool:
        """Return whether the job should have been delivered by then."""
        end = self.ends[when]
        over = record.asked + record.ttl * SECOND <= end + SECOND
        spread = max(self.offsets.values()) * MS
        settled = end - (1 + RULES.settled) * SECOND - spread
        young = record.confirmed + record.delay * SECOND > settled
        job = self.audits[when].jobs.get(record.id.decode())
        until = None if job is None else job["until"]
        paused = until is not None and (until - EPOCH) * MS > settled
        return not (record.asked_to_end or over or young or paused)


def check_deliveries(run: Run, when: int, audit: Audited) -> Counter[str]:
    """Check that the table and the findings have exactly the jobs and deliveries of the logs.

    Return the counts of what was seen.
    """
    counts: Counter[str] = Counter()
    twice, after = audit.found(TWICE), audit.found(AFTER_ACK)
    never, expired = audit.found(NEVER_DELIVERED), audit.found(EXPIRED)
    for record in run.world.oracle.records:
        id = record.id.decode()
        job = audit.jobs.get(id)
        seen = len(run.deliveries(when, record)) if id else 0
        if job is None:
            assert not seen
            assert not id or not run.confirmed(when, record), id
            continue
        if record.id in run.world.oracle.unsent:
            # Its client left in the turn that pushed it: the node delivered it, nobody saw it.
            assert job["deliveries"] >= seen, id
            continue
        assert job["deliveries"] == seen, id
        assert seen < 2 or id in twice or id in after, id
        assert seen > 1 or id not in twice, id
        if id in never or id in expired:
            assert seen == 0, id
            unsure = None not in never.get(id, ()) and None not in expired.get(id, ())
            # A finding without a doubt is true. The job may be delivered after the end of the logs.
            in_time = [at for at, _ in record.sent if at < run.ends[LATE]]
            assert unsure or when == EARLY or not in_time, id
            counts["unsure" if unsure else "lost"] += 1
        counts["again"] += seen > 1
    assert audit.seen.unknown == audit.seen.strange == 0
    return counts


def check_undelivered(run: Run, when: int, audit: Audited) -> None:
    """Check that confirmed jobs that were never delivered are found, or wait."""
    never, expired = audit.found(NEVER_DELIVERED), audit.found(EXPIRED)
    waits = {one.job for one in audit.waits}
    for record in run.world.oracle.records:
        id = record.id.decode()
        if not id or record.sent:
            continue
        if run.confirmed(when, record) and run.must_be_delivered(when, record):
            assert id in never or id in expired or id in waits, id
        if record.confirmed < 0:
            assert None not in never.get(id, ()), id
        if id in expired:
            assert record.asked + record.ttl * SECOND <= run.ends[when] + 6 * SECOND, id


UNDONE = (NOT_REQUEUED, NEVER_ACKED, WITH_WORKER, EXPIRED_UNACKED)


def check_undone(run: Run, when: int, audit: Audited) -> Counter[str]:
    """Check that delivered jobs are reported as not done exactly when nobody asked for their end,
    and that findings without a doubt are true. Return the counts of what was seen."""
    counts: Counter[str] = Counter()
    found = {kind: audit.found(kind) for kind in (*UNDONE, UNSEEN_ACK)}
    waits = {one.job for one in audit.waits}
    end = run.ends[when]
    spread = max(run.offsets.values()) * MS
    for record in run.world.oracle.records:
        id = record.id.decode()
        if not id:
            continue
        kinds = {kind for kind, jobs in found.items() if id in jobs}
        sure = {kind for kind in kinds if None in found[kind][id]}
        assert len(kinds) <= 1, (id, kinds)
        counts.update(sure)
        counts["in doubt"] += len(kinds - sure)
        if sure & set(UNDONE):
            assert not run.acked(record) or when == EARLY, (id, sure)
            assert record.sent, id
        if UNSEEN_ACK in sure:
            assert not record.sent, id
        if WITH_WORKER in kinds:
            assert record.retry == 0
        seen = run.deliveries(when, record)
        if not seen or record.asked_to_end or record.confirmed < 0:
            continue
        over = record.asked + record.ttl * SECOND <= end + SECOND
        wait = (max(record.retry, 1) * RULES.retries + RULES.settled + 2) * SECOND + spread
        if not over and max(seen) + wait < end:
            assert kinds or id in waits, id
            counts["undone"] += 1
    return counts


def check_waiting(run: Run, when: int, audit: Audited) -> Counter[str]:
    """Check that jobs that wait according to the logs are in queues, and are no losses. Return the
    counts of what was seen."""
    counts: Counter[str] = Counter()
    lost = {*audit.found(NEVER_DELIVERED), *(job for kind in UNDONE for job in audit.found(kind))}
    for one in audit.waits:
        assert one.job is not None
        assert one.job not in lost or one.kind == WAITING_LETTER, one
        counts[one.kind] += one.reason is None
        # The nodes are as they were then. One that was started without its file has lost jobs.
        if when == LATE and one.reason is None:
            assert is_queued(run, one.job.encode()), one
    return counts


def is_queued(run: Run, id: bytes) -> bool:
    """Return whether a node has the job in a queue now."""
    for machine in run.world.machines:
        job = machine.node.store.jobs.get(id)
        if job is not None and job.state == QUEUED:
            return True
    return False


def check_without_a_node(run: Run, directory: Path) -> Counter[str]:
    """Check that, without the logs of one node, findings without a doubt are still true.

    Return the counts of what was seen.
    """
    counts: Counter[str] = Counter()
    missing = run.world.machines[0].id.decode()
    for path in directory.glob(f"events-{missing[:8]}-*"):
        path.unlink()
    audit = audited([directory], RULES)
    if missing in audit.nodes or missing not in audit.missing:
        return counts  # it never got into any log
    undelivered = audit.found(NEVER_DELIVERED), audit.found(EXPIRED), audit.found(UNSEEN_ACK)
    undone = [audit.found(kind) for kind in UNDONE]
    for record in run.world.oracle.records:
        id = record.id.decode()
        for jobs in undelivered:
            assert None not in jobs.get(id, ()) or not record.sent, id
        for jobs in undone:
            assert None not in jobs.get(id, ()) or not run.acked(record), id
            counts[LOG_MISSING] += LOG_MISSING in jobs.get(id, ())
        for jobs in undelivered:
            counts[LOG_MISSING] += LOG_MISSING in jobs.get(id, ())
    assert not [found for found in audit.findings if found.reason == "set"]
    return counts


REASONS = {"nack", "enqueue", "retry", "disconnect", "redrive", "partition", "restart", LOG_GAP}


def check_reasons(run: Run, audit: Audited) -> None:
    """Check that the stated reason of a redelivery did happen."""
    # No node delivers an at-most-once job again unless a client wants it.
    assert not audit.found(ONCE_TWICE)
    for id, reasons in audit.found(TWICE).items():
        record = run.world.oracle.by_id[id.encode()]
        assert "nack" not in reasons or b"NACK" in record.asked_for, id
        assert "enqueue" not in reasons or record.asked_for & {b"ENQUEUE", b"PROMOTE"}, id
        # A dead letter, and the job it is redriven as, may repeat whatever the original job was.
        retried = record.retry or record.id != id.encode()
        assert not reasons & {"retry", "disconnect"} or retried, id
        assert not reasons & {"disconnect", "redrive"} or run.mode == EXTENDED, id
        assert reasons <= REASONS, id
        if run.mode == CALM:
            assert reasons == {"nack"}, id
        if not run.restarted:
            assert "restart" not in reasons, id
        if run.whole:
            assert LOG_GAP not in reasons, id


def check_after_ack(run: Run, when: int, audit: Audited) -> None:
    """Check that jobs delivered after their acknowledgement are found, and only those.

    No node delivers a job that it knows is acknowledged.
    """
    found = audit.found(AFTER_ACK)
    for id, reasons in found.items():
        record = run.world.oracle.by_id[id.encode()]
        # The time when it became a dead letter is not known here.
        ends = [at for at, _ in record.acked + record.cancelled]
        assert record.letters or max(at for at, _ in record.sent) > min(ends), id
        assert "heard" not in reasons, id
    if not run.whole or run.world.plan.leaving >= 0:
        return
    places = [audit.nodes.index(machine.id.decode()) for machine in run.world.machines]
    for record in run.world.oracle.records:
        acked = [(at, one) for at, one in record.acked if run.in_log(when, at, one)]
        if not acked or not record.retry or record.ttl < 3600:
            continue
        since, acked_on = acked[0]
        for at, index in record.sent:
            doubt = audit.clocks.doubt[places[acked_on]][places[index]]
            late = (at - since) // MS > RULES.tolerance + 2 * doubt + 5
            if late and run.in_log(when, at, index):
                assert record.id.decode() in found, record.id


def check_clocks(run: Run, audit: Audited) -> int:
    """Check the reported clock skew. Return the number of pairs of nodes that are apart."""
    apart = set()
    for one, source in enumerate(audit.nodes):
        for other, target in enumerate(audit.nodes):
            true = run.offsets[target] - run.offsets[source]
            doubt = audit.clocks.doubt[one][other]
            if doubt < UNKNOWN:
                said = audit.clocks.ahead[other] - audit.clocks.ahead[one]
                assert abs(said - true) <= doubt + 3, (source, target)
                if abs(true) >= RULES.skew + 2 * doubt + 6:
                    apart.add(frozenset((source, target)))
    found = [finding for finding in audit.findings if finding.kind == CLOCK_SKEW]
    pairs = {frozenset(finding.nodes) for finding in found}
    assert apart <= pairs
    for pair in pairs:
        one, other = pair
        assert abs(run.offsets[one] - run.offsets[other]) >= RULES.skew
    return len(pairs)


@pytest.mark.timeout(600 + 10 * SEEDS)
def test_the_audit_of_clusters_in_trouble_is_right(tmp_path: Path) -> None:
    counts: Counter[str] = Counter()
    for seed in range(FIRST, FIRST + SEEDS):
        run = Run(seed, tmp_path / f"{seed}", steady=True)
        print(f"seed {seed}")  # the last one shown is the one that failed
        if seed % 4 == 0:
            counts += check_without_a_node(run, tmp_path / f"{seed}" / "late")
        for when, audit in enumerate(run.audits):
            counts += check_deliveries(run, when, audit)
            check_undelivered(run, when, audit)
            counts += check_undone(run, when, audit)
            counts += check_waiting(run, when, audit)
            check_reasons(run, audit)
            check_after_ack(run, when, audit)
            counts["apart"] += check_clocks(run, audit)
            counts["after"] += len(audit.found(AFTER_ACK))
            counts["poison"] += len(audit.found(POISON))
            for reasons in audit.found(TWICE).values():
                counts.update(str(reason) for reason in reasons)
    # The runs were worth something: everything did happen, once in eight of them.
    happened = (
        "lost",
        "unsure",
        "again",
        "apart",
        "after",
        "nack",
        "enqueue",
        "retry",
        "partition",
    )
    for what in (
        *(*happened, WITH_WORKER, EXPIRED_UNACKED, WAITING, LOG_MISSING),
        *("undone", "in doubt"),
    ):
        assert counts[what] >= SEEDS // 8, (what, counts)


@pytest.mark.timeout(900)
def test_the_audit_of_what_c_disque_does_not_have_is_right(tmp_path: Path) -> None:
    """Dead letters, pauses, moves, topics, and consumers that jobs are pushed to."""
    counts: Counter[str] = Counter()
    for seed in range(FIRST, FIRST + 16):
        run = Run(seed, tmp_path / f"{seed}", steady=True, extended=True)
        print(f"seed {seed}")
        for when, audit in enumerate(run.audits):
            counts += check_deliveries(run, when, audit)
            counts += check_waiting(run, when, audit)
            check_reasons(run, audit)
            check_clocks(run, audit)
            counts["dead"] += len(audit.found(DEAD))
            for reasons in audit.found(TWICE).values():
                counts.update(str(reason) for reason in reasons)
            for id, reasons in audit.found(AFTER_ACK).items():
                assert "heard" not in reasons, id
    for what in ("dead", "nack", "enqueue", "retry"):
        assert counts[what] > 5, (what, counts)
    assert counts["disconnect"] > 2, counts


@pytest.mark.timeout(600 + 10 * JUMPING)
def test_clocks_that_jump_make_no_deliveries_and_no_losses(tmp_path: Path) -> None:
    counts: Counter[str] = Counter()
    for seed in range(SEEDS, SEEDS + JUMPING):
        run = Run(seed, tmp_path / f"{seed}", steady=False)
        print(f"seed {seed}")
        for when, audit in enumerate(run.audits):
            counts += check_deliveries(run, when, audit)
    assert counts["again"] > 5 * JUMPING
