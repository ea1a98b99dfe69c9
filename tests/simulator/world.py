"""A cluster with its network, its clients and its faults, from one seed: ``run(plan)``.

The course of a run: the nodes start and find each other; clients work while things go wrong; all
faults end; clients take and acknowledge what is left; then the oracle judges.
"""

import gc
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random

from tests.simulator.bindings import check_bindings
from tests.simulator.clients import Actor, adder, commander, consumer, drainer, producer
from tests.simulator.clocks import EPOCH
from tests.simulator.counted import check_counts
from tests.simulator.eventlog import MachineLog
from tests.simulator.events import MS, SECOND, EventLoop
from tests.simulator.extended_clients import meddler, repeater, waiter
from tests.simulator.fabric import Fabric
from tests.simulator.faults import Faults
from tests.simulator.machine import Machine
from tests.simulator.oracle import Enough, Oracle, Problem
from tests.simulator.pauses import check_pauses
from tests.simulator.plan import CALM, LIVENESS, QUEUES, TIMELY, Plan
from tests.simulator.pushes import pushed_worker
from tests.simulator.ticks import check_ticks
from tests.simulator.timely import Timely
from tests.simulator.timely_clients import POLLING_CLIENTS, TIMELY_CLIENTS, Programs
from tests.simulator.trace import Trace

JOIN_LIMIT = 60 * SECOND
PATIENCE = 10 * SECOND
# How long after the last fault delayed packets have arrived or are lost: the longest break-off, the
# longest delay, and the time after which a hung link is given up.
SETTLE = 10 * SECOND
DRAIN_LIMIT = 400 * SECOND
TTL_OVER = 90_000_000  # ms: more than the longest time to live
MAX_EVENTS = 2_000_000
# The back-off of NEEDJOBS goes up to 30 s; add what comes before it, and the way.
DELIVERY_LIMIT = 40 * SECOND
CALM_ANSWER_LIMIT = 500 * MS
MAJORITY_ANSWER_LIMIT = 10 * SECOND  # packets may take long
NOTICED = 250 * MS  # a node looks at the others, and at what waits for them, at intervals


@dataclass(slots=True)
class Outcome:
    """How a run ended.

    Attributes:
        problems: broken promises; empty: all is well.
        lines, digest: the trace, if requested.
        jobs, delivered, again: numbers of ADDJOBs, of delivered jobs, and of repeated deliveries.
        events: number of events. virtual: seconds of virtual time.
    """

    problems: list[Problem]
    trace: Trace
    jobs: int
    confirmed: int
    delivered: int
    again: int
    events: int
    virtual: int


class World:
    """See the module.

    Attributes:
        drops: packets that never arrive, for tests that break the cluster on purpose.
        steady_clocks: clocks are always wrong by what the plan says, and do not jump.
        replies_first: reply before the journal is written, for such tests.
        usable: machines that clients connect to.
        stopping: clients should end. drained: so should the last ones.
        started_s: when the world began, by a correct clock, in s since the epoch.
        ended_work, ended: when all faults were over, and when the run was, in virtual µs.
    """

    def __init__(self, plan: Plan, trace: bool = False) -> None:
        self.plan = plan
        self.loop = EventLoop()
        self.rng = Random(f"world {plan.seed}")
        self.trace = Trace(trace, lambda: self.loop.now)
        self.fabric = Fabric(self.loop, self.rng, plan.tail, plan.duplicates)
        if plan.mode == LIVENESS:
            # A node whose PONG takes longer than half the node timeout may be taken for dead.
            self.fabric.longest_tail = plan.node_timeout * MS // 4
        self.oracle = Oracle(self)
        self.timely = Timely(self, self.oracle.problem) if plan.mode == TIMELY else None
        self.faults = Faults(self)
        self.drops: Callable[[bytes], bool] | None = None
        self.steady_clocks = plan.mode == TIMELY
        if self.timely is not None:
            self.fabric.late = 0
        self.replies_first = False
        self.stopping = False
        self.drained = False
        self.started_s = EPOCH // 1000
        self.ended_work = self.ended = 0
        self._logs: Path | None = None
        self.clients: list[Actor] = []
        self.operators: list[Actor] = []
        self.machines = [
            Machine(self, index, plan.policies[index], plan.memories[index])
            for index in range(plan.nodes)
        ]
        self.usable = self.machines
        self.addresses = {machine.id: (machine.ip, machine.port) for machine in self.machines}

    def write_logs(self, directory: Path) -> None:
        """Let all machines write event logs, which are in ``directory`` at the end: in ``early``,
        those up to the end of all faults, as if the nodes continued; in ``late``, those of the
        whole run, after all nodes have stopped."""
        self._logs = directory
        for machine in self.machines:
            rng = Random(f"log {machine.index} {self.plan.seed}")
            machine.log = MachineLog(machine.id, rng)

    def _save_logs(self, name: str, stop: bool) -> None:
        if self._logs is None:
            return
        directory = self._logs / name
        directory.mkdir()
        for machine in self.machines:
            assert machine.log is not None
            if stop and machine.up:
                machine.log.stop(machine.node, self.loop.now)
            machine.log.save(directory)

    def note(self, text: str) -> None:
        """For the trace."""
        if self.trace.on:
            self.trace.add(text)

    def run(self) -> Outcome:
        """Run everything."""
        # Most of what a world makes lives as long as it does: looking for garbage only takes time.
        collects = gc.isenabled()
        gc.disable()
        try:
            self._run()
        except Enough:
            pass
        except Exception:
            with suppress(Enough):
                self.oracle.problem("raised: " + traceback.format_exc())
        finally:
            if collects:
                gc.enable()
        records = self.oracle.records
        return Outcome(
            self.oracle.problems,
            self.trace,
            len(records),
            sum(record.confirmed >= 0 for record in records),
            sum(bool(record.sent) for record in records),
            sum(max(len(record.sent) - 1, 0) for record in records),
            self.loop.count,
            self.loop.now // SECOND,
        )

    def _run(self) -> None:
        plan = self.plan
        self.boot()
        if not self.joined():
            self.oracle.problem("the nodes did not find each other")
            return
        begin = self.loop.now
        end = begin + plan.work
        if plan.mode == LIVENESS:
            self._lose_minority()
            begin = self.loop.now
            end = begin + plan.work
        else:
            self.faults.plan(begin, end)
        self._start_clients()
        if self.timely is not None:
            self.timely.start()
        self.loop.run_until(end)
        if plan.mode == LIVENESS:
            self._judge_majority(begin)
        self._save_logs("early", stop=False)
        self.ended_work = self.loop.now
        self._heal()
        self._drain()
        self._judge()

    # ---- the course of things ---------------------------------------------------------------

    def boot(self) -> None:
        plan = self.plan
        for machine in self.machines:
            self.fabric.add(machine)
            machine.clock.change(0, plan.rates[machine.index], plan.offsets[machine.index])
        for machine in self.machines:
            machine.start()
        if not plan.static:
            self._introduce()

    def _introduce(self) -> None:
        """The first machine meets half of the others; the rest meet it."""
        first = self.machines[0]
        for machine in self.machines[1:]:
            known, other = (first, machine) if machine.index % 2 else (machine, first)
            self.command(known, [b"CLUSTER", b"MEET", other.ip.encode(), b"%d" % other.port])

    def joined(self) -> bool:
        """Let time pass until all nodes know each other; return whether they do."""
        everybody = len(self.machines)
        while self.loop.now < JOIN_LIMIT:
            self.loop.run_until(self.loop.now + 100 * MS)
            if all(
                machine.node.peers.size == everybody
                and len(machine.node.peers.reachable) == everybody - 1
                and all(machine.node.peers.linked(id) for id in machine.node.peers.everyone())
                for machine in self.machines
            ):
                return True
            if self.loop.now % PATIENCE == 0 and not self.plan.static:
                # A handshake whose packets are late is given up; the operator tries again.
                self._introduce()
        return False

    def _start_clients(self) -> None:
        plan = self.plan
        for number in range(plan.producers):
            actor = Actor(self, f"producer {number}")
            self.clients.append(actor)
            actor.start(producer(actor))
        for number in range(plan.consumers):
            actor = Actor(self, f"consumer {number}")
            self.clients.append(actor)
            actor.start(consumer(actor))
        if plan.attempts:
            programs: Programs = (repeater, repeater, waiter, meddler, pushed_worker)
            if self.timely is not None:
                programs = POLLING_CLIENTS if plan.polls else TIMELY_CLIENTS
            for number, program in enumerate(programs):
                actor = Actor(self, f"{program.__name__} {number}")
                self.clients.append(actor)
                actor.start(program(actor))

    def _heal(self) -> None:
        """End all faults."""
        plan = self.plan
        self.note("* all faults end")
        self.faults.over = True
        self.stopping = True
        fabric = self.fabric
        fabric.mend_paths(sorted(fabric.cut))
        fabric.tail = 0.0
        fabric.duplicates = 0.0
        for machine in self.machines:
            self.revive(machine)
            machine.paused_until = min(machine.paused_until, self.loop.now)
            machine.change_clock(1_000_000, 0)
        self.usable = [machine for machine in self.machines if not machine.removed]
        if plan.leaving >= 0 and plan.seed % 2:
            self.machines[plan.leaving].leave = False
        for machine in self.usable:
            # A node that restarts forgets what an operator requested, so the request is repeated.
            leaving = b"yes" if machine.leave else b"no"
            self.command(machine, [b"CLUSTER", b"LEAVING", leaving])

    def _resume_queues(self) -> None:
        """No queue is paused any longer; no PAUSE with BCAST may be in flight."""
        for machine in self.usable:
            self.command(machine, *[[b"PAUSE", queue, b"none", b"bcast"] for queue in QUEUES])

    def _are_paused(self) -> bool:
        """Whether some node pauses a queue."""
        queues = [queue for one in self.usable for queue in one.node.queues.by_name.values()]
        return any(queue.paused for queue in queues)

    def _drain(self) -> None:
        """Let consumers take what is left, for as long as that takes."""
        drainers: list[Actor] = []
        for index in self.plan.drained_at:
            if self.machines[index].removed:
                continue
            actor = Actor(self, f"drainer {index}")
            drainers.append(actor)
            actor.start(drainer(actor, self.machines[index]))
        end = self.loop.now + DRAIN_LIMIT
        well = self.loop.now + SETTLE
        self.oracle.snapshot(well)
        self._resume_queues()
        looked = False
        while self.loop.now < end:
            self.loop.run_until(self.loop.now + SECOND)
            if not looked and self.loop.now >= well:
                self.oracle.snapshot(well)
                self._resume_queues()
                looked = True
            if self._quiet():
                if looked or not self._are_paused():
                    break
                # An operator whose node was down has paused a queue after all.
                self.oracle.snapshot(well)
                self._resume_queues()
                looked = True
            if self.loop.count > MAX_EVENTS:
                self.oracle.problem("too many events: something never comes to rest")
                break
        self.drained = True

    def _quiet(self) -> bool:
        if not all(actor.done for actor in self.clients + self.operators):
            return False
        return all(not self.oracle.left_over(machine) for machine in self.usable) and all(
            record.confirmed < 0
            or not self.oracle.must_arrive(record)
            or record.received
            or self.oracle.excuse(record)
            for record in self.oracle.records
        )

    def _judge(self) -> None:
        oracle = self.oracle
        for actor in self.clients + self.operators:
            if not actor.done:
                asked = actor.waits_for.asked if actor.waits_for else []
                oracle.problem(f"{actor.name} is stuck with {asked}")
        oracle.check_drained()
        check_counts(self)
        if self.plan.mode == CALM:
            oracle.check_latency(0, CALM_ANSWER_LIMIT, DELIVERY_LIMIT)
        for machine in self.usable:
            if machine.node.blocked_clients > len(self.machines):
                oracle.problem(f"node {machine.index} has {machine.node.blocked_clients} waits")
            for session in machine.sessions:
                if session.client.in_flight:
                    oracle.problem(f"a client of {machine.index} still waits for copies")
        if oracle.problems:
            return
        self._save_logs("late", stop=True)
        self.ended = self.loop.now
        if self.plan.attempts:
            check_ticks(self)
            check_bindings(self)
            check_pauses(self)
        # A copy says how long the job has to live from when it arrives, since clocks differ: none
        # may be on its way while a day passes.
        self.loop.run_until(self.loop.now + self.fabric.longest_tail + 2 * self.fabric.base)
        for machine in self.usable:
            machine.node.policies.clear()  # what expires now must leave nothing behind
            machine.change_clock(1_000_000, TTL_OVER)
        self.loop.run_until(self.loop.now + 5 * SECOND)
        for machine in self.usable:
            oracle.check_gone(machine)

    # ---- liveness ---------------------------------------------------------------------------

    def _lose_minority(self) -> None:
        """Cut off the minority, or kill it, and wait until the others notice."""
        plan = self.plan
        minority = plan.minority
        majority = [machine for machine in self.machines if machine.index not in minority]
        if plan.minority_dies:
            for index in minority:
                self.machines[index].kill(0, machine=True)
        else:
            inside = [machine.index for machine in majority]
            self.fabric.cut_paths([(a, b) for a in minority for b in inside])
            self.fabric.cut_paths([(a, b) for a in inside for b in minority])
        self.note(f"* minority {minority}, dead {plan.minority_dies}")
        self.usable = majority
        adders = [Actor(self, f"adder {machine.index}") for machine in majority]
        for actor, machine in zip(adders, majority, strict=True):
            actor.start(adder(actor, machine))
        lost = {self.machines[index].id for index in minority}
        # A static mesh gives up a hung link after 3 s, a gossiping one after the node timeout.
        end = self.loop.now + (15 * SECOND if plan.static else 4 * plan.node_timeout * MS + SECOND)
        while self.loop.now < end:
            # Occasionally use a client: only a node that has something to send notices that a path
            # is cut.
            self.loop.run_until(self.loop.now + 500 * MS)
            unseen = any(id in lost for one in majority for id in one.node.peers.reachable)
            if not unseen and all(actor.done for actor in adders):
                self._judge_adders()
                return
            if plan.static:
                for one in majority:
                    for id in sorted(lost):
                        one.post(_say_something(one, id))
        self.oracle.problem("the majority does not see that the others are gone")

    def _judge_adders(self) -> None:
        """Check that nobody waited for nodes that are gone for longer than a node timeout, and the
        time that their last packets may take to arrive. Clocks are slow by a fiftieth at most."""
        plan = self.plan
        if not plan.static:
            longest = plan.node_timeout * MS * 50 // 49 + NOTICED
            self.oracle.check_answers(longest + (self.fabric.longest_tail if plan.tail else 0))

    def _judge_majority(self, begin: int) -> None:
        """Wait until everything that was added is delivered, with the minority still away."""
        self.stopping = True
        limit = self.loop.now + DELIVERY_LIMIT
        drainers = [Actor(self, f"majority {machine.index}") for machine in self.usable]
        for actor, machine in zip(drainers, self.usable, strict=True):
            self.clients.append(actor)
            actor.start(drainer(actor, machine, limit))
        self.loop.run_until(limit + 5 * SECOND)
        self.oracle.check_latency(begin, MAJORITY_ANSWER_LIMIT, DELIVERY_LIMIT)
        for record in [one for one in self.oracle.records if one.asked >= begin]:
            if record.error:
                self.oracle.problem(f"a majority could not add a job: {record.error}")
            elif not record.sent and self.oracle.must_arrive(record):
                self.oracle.problem("a majority did not deliver a job", record.id)
        if not self.plan.static:
            self._check_fail_detected()

    def _check_fail_detected(self) -> None:
        lost = {self.machines[index].id.decode() for index in self.plan.minority}
        for machine in self.usable:
            for line in machine.node.peers.describe().splitlines():
                fields = line.split()
                if fields[0] in lost and "fail" not in fields[2].split(","):
                    self.oracle.problem(f"node {machine.index} says {line}")

    # ---- helpers ----------------------------------------------------------------------------

    def revive(self, machine: Machine) -> None:
        """Start the process of ``machine`` unless it is running."""
        machine.settle_death()
        if not machine.up and not machine.removed:
            skew = 0
            if self.plan.mode != CALM and not self.steady_clocks:
                skew = self.rng.choice((0, 0, 300, 3_000, 60_000, -3_000, -60_000))
            if not machine.intact:
                # Together, a file that lost its end and a clock that went back hide that the delay
                # of an at-most-once job was over, and thus that it was delivered.
                skew = abs(skew)
            machine.clock.change(self.loop.now, machine.clock.rate, skew)
            machine.start(machine.start_with_queues)
            machine.start_with_queues = False
            self.oracle.restarted(machine)
            if machine.leave:
                self.command(machine, [b"CLUSTER", b"LEAVING", b"yes"])

    def command(self, machine: Machine, *requests: list[bytes]) -> None:
        actor = Actor(self, f"operator {self.loop.now} {machine.index}")
        self.operators.append(actor)
        actor.start(commander(actor, machine, *requests))


def _say_something(machine: Machine, id: bytes) -> Callable[[int], None]:
    packet = machine.node.packets.about_queue(12, b"nobody", 1)
    return lambda now: machine.node.peers.send(id, packet)
