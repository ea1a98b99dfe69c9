"""What the audit says of the event logs of simulated clusters is what the simulator knows."""

import os
from collections import Counter
from pathlib import Path

import pytest
from audited_logs import Audited, audited
from sim.engine.events import MS, SECOND
from sim.engine.oracle import JobRecord
from sim.engine.plan import CALM, make_plan, mode_of
from sim.engine.world import World

from disque_trio.spark.audit_clocks import UNKNOWN
from disque_trio.spark.audit_judge import (
    AFTER_ACK,
    CLOCK_SKEW,
    EXPIRED,
    LOG_GAP,
    NEVER_DELIVERED,
    POISON,
    TWICE,
    Rules,
)

RULES = Rules(settled=2)
SEEDS = int(os.environ.get("AUDIT_SEEDS", "48"))  # for more than `make test` has time for
JUMPING = SEEDS // 5
EARLY, LATE = 0, 1  # the logs when all faults were over, and in the end
LITTLE = 400  # how much less a clock drifts than it may elsewhere: 50 millionths


class Run:
    """A cluster that has run, and the audits of its logs."""

    def __init__(self, seed: int, directory: Path, steady: bool) -> None:
        self.mode = mode_of(seed)
        plan = make_plan(seed, self.mode)
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
        """Whether what the machine ``index`` did at ``at`` (µs) is in the logs of ``when``."""
        log = self.world.machines[index].log
        assert log is not None
        return at < log.saved[when] and not any(start <= at <= end for start, end in log.lost)

    def deliveries(self, when: int, record: JobRecord) -> list[int]:
        """When the job was delivered, as far as it is in the logs of ``when``."""
        return [at for at, index in record.sent if self.in_log(when, at, index)]

    def confirmed(self, when: int, record: JobRecord) -> bool:
        """Whether the logs of ``when`` must say that the job was confirmed."""
        made_by = record.id[2:10]
        (index,) = [one.index for one in self.world.machines if one.id.startswith(made_by)]
        return record.confirmed >= 0 and self.in_log(when, record.confirmed, index)

    def must_be_delivered(self, when: int, record: JobRecord) -> bool:
        """Whether the job had better been delivered by then."""
        end = self.ends[when]
        asked_to_end = record.ack_asked or record.deletion_asked
        over = record.asked + record.ttl * SECOND <= end + SECOND
        spread = max(self.offsets.values()) * MS
        young = record.confirmed + (record.delay + RULES.settled) * SECOND + spread > end - SECOND
        return not (asked_to_end or over or young)


def check_deliveries(run: Run, when: int, audit: Audited) -> Counter[str]:
    """The table has each job and each delivery that is in the logs, and none else; so have the
    findings. Returns what there was."""
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
        assert job["deliveries"] == seen, id
        assert seen < 2 or id in twice or id in after, id
        assert seen > 1 or id not in twice, id
        if id in never or id in expired:
            assert seen == 0, id
            unsure = None not in never.get(id, ()) and None not in expired.get(id, ())
            # What is there without a doubt is true.
            assert unsure or when == EARLY or not record.sent, id
            counts["unsure" if unsure else "lost"] += 1
        counts["again"] += seen > 1
    assert audit.seen.unknown == audit.seen.strange == 0
    return counts


def check_undelivered(run: Run, when: int, audit: Audited) -> None:
    """What was confirmed and never delivered is found; what is not confirmed is not."""
    never, expired = audit.found(NEVER_DELIVERED), audit.found(EXPIRED)
    for record in run.world.oracle.records:
        id = record.id.decode()
        if not id or record.sent:
            continue
        if run.confirmed(when, record) and run.must_be_delivered(when, record):
            assert id in never, id
        if record.confirmed < 0:
            assert None not in never.get(id, ()), id
        if id in expired:
            assert record.asked + record.ttl * SECOND <= run.ends[when] + 6 * SECOND, id


def check_reasons(run: Run, audit: Audited) -> None:
    """A delivery that is said to be due to something came after that."""
    for id, reasons in audit.found(TWICE).items():
        record = run.world.oracle.by_id[id.encode()]
        assert "nack" not in reasons or b"NACK" in record.asked_for, id
        assert "enqueue" not in reasons or b"ENQUEUE" in record.asked_for, id
        assert "retry" not in reasons or record.retry, id
        assert reasons <= {"nack", "enqueue", "retry", "partition", "restart", LOG_GAP}, id
        if run.mode == CALM:
            assert reasons == {"nack"}, id
        if not run.restarted:
            assert "restart" not in reasons, id
        if run.whole:
            assert LOG_GAP not in reasons, id


def check_after_ack(run: Run, when: int, audit: Audited) -> None:
    """A job is said to have been delivered after its acknowledge when it was, and no node delivers
    one of which it knows that."""
    found = audit.found(AFTER_ACK)
    for id, reasons in found.items():
        record = run.world.oracle.by_id[id.encode()]
        assert max(at for at, _ in record.sent) > min(at for at, _ in record.acked), id
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
    """Clocks are as far apart as it is said. Returns how many pairs are."""
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


@pytest.mark.timeout(240 + 5 * SEEDS)
def test_the_audit_of_clusters_in_trouble_is_right(tmp_path: Path) -> None:
    counts: Counter[str] = Counter()
    for seed in range(SEEDS):
        run = Run(seed, tmp_path / f"{seed}", steady=True)
        print(f"seed {seed}")  # the last one that is shown is the one that failed
        for when, audit in enumerate(run.audits):
            counts += check_deliveries(run, when, audit)
            check_undelivered(run, when, audit)
            check_reasons(run, audit)
            check_after_ack(run, when, audit)
            counts["apart"] += check_clocks(run, audit)
            counts["after"] += len(audit.found(AFTER_ACK))
            counts["poison"] += len(audit.found(POISON))
            for reasons in audit.found(TWICE).values():
                counts.update(str(reason) for reason in reasons)
    # The runs are worth something: all of it has happened.
    for what in ("lost", "unsure", "again", "apart", "after", "nack", "enqueue", "retry"):
        assert counts[what] > 5, (what, counts)
    assert counts["partition"] > 5


@pytest.mark.timeout(120 + 5 * JUMPING)
def test_clocks_that_jump_make_no_deliveries_and_no_losses(tmp_path: Path) -> None:
    counts: Counter[str] = Counter()
    for seed in range(SEEDS, SEEDS + JUMPING):
        run = Run(seed, tmp_path / f"{seed}", steady=False)
        print(f"seed {seed}")
        for when, audit in enumerate(run.audits):
            counts += check_deliveries(run, when, audit)
    assert counts["again"] > 50
