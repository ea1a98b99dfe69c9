"""Faults: what goes wrong, drawn from the seed, and how it is repaired."""

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from disque_trio.node.core.jobs.job import ACKED
from tests.simulator.clients import Actor, commander, copier
from tests.simulator.events import MS, SECOND
from tests.simulator.machine import BEFORE_PACKETS, BEFORE_PERSIST, BEFORE_REPLIES, BEFORE_TURN
from tests.simulator.plan import CRASHES, QUEUES, TIMELY

if TYPE_CHECKING:
    from tests.simulator.machine import Machine
    from tests.simulator.world import World

HELD_FOR = 500  # ms that a client has a job until its node is killed
STAGES = (BEFORE_TURN, BEFORE_PERSIST, BEFORE_PACKETS, BEFORE_REPLIES)


class Faults:
    """Causes the faults of one run.

    Attributes:
        over: no more faults may happen.
        only_stops: there are no faults but clean stops, at the worst moment: when another node has
            just given the node jobs, or a second later.
        only_kills: there is no fault but one kill of a node with a client that has had a job for
            long enough that its other holders know. It does not start again soon.
        copying: an operator makes copies of the jobs of a node that leaves.
    """

    def __init__(self, world: "World") -> None:
        self.world = world
        self.rng = Random(f"faults {world.plan.seed}")
        self.over = False
        self.only_stops = self.only_kills = False
        self.copying = False
        self._when_given: dict[int, Callable[[], None]] = {}

    def plan(self, begin: int, end: int) -> None:
        """Cause the faults of the plan between two points in time."""
        plan = self.world.plan
        if self.only_kills:
            self._at(begin, self.kill_with_client)
            return
        kinds: list[tuple[Callable[[], None], int]] = [
            (self.partition, 5),
            (self.crash, 40 if plan.temper == CRASHES else 5),
            (self.stop, 2),
            (self.pause, 2),
            (self.clock, 2),
            (self.break_links, 2),
            (self.pause_queue, 2),
        ]
        if plan.mode == TIMELY:
            kinds = [(self.stop, 3), (self.kill_all, 1), (self.crash, 1)]
        if self.only_stops:
            kinds = [(self.stop, 1)]
        choices = [kind for kind, weight in kinds for _ in range(weight)]
        for _ in range(plan.faults):
            at = self.rng.randrange(begin, end)
            self._at(at, self.rng.choice(choices))
        if plan.leaving >= 0:
            self._at(self.rng.randrange(begin, begin + (end - begin) // 4), self.leave)

    def _at(self, time: int, action: Callable[[], None]) -> None:
        self.world.loop.at(time, lambda: None if self.over else action())

    def _some(self) -> "Machine":
        return self.rng.choice(self.world.machines)

    # ---- the network ------------------------------------------------------------------------

    def partition(self) -> None:
        """Cut some paths for a while."""
        world = self.world
        rng = self.rng
        shape = rng.choice(("halves", "one", "one-way", "ring", "bridge"))
        paths = shaped(shape, world.plan.nodes, rng)
        world.note(f"* partition {shape}: {paths}")
        world.fabric.cut_paths(paths)

        def repair() -> None:
            world.note(f"* repaired {paths}")
            world.fabric.mend_paths(paths)

        self._at(world.loop.now + rng.randrange(500 * MS, 8 * SECOND), repair)

    def break_links(self) -> None:
        """Break the connections between two nodes."""
        one, two = self.rng.sample(range(self.world.plan.nodes), 2)
        self.world.note(f"* links between {one} and {two} break")
        self.world.fabric.break_links(one, two)

    # ---- machines ---------------------------------------------------------------------------

    def crash(self) -> None:
        """Kill a process, or switch off its machine."""
        machine = self._some()
        rng = self.rng
        if machine.up and not machine.stopping:
            of_machine = rng.random() < 0.4 and self.world.plan.mode != TIMELY
            machine.kill(rng.choice(STAGES), of_machine)
            self._start_later(machine, rng.randrange(100 * MS, 6 * SECOND))

    def kill_with_client(self) -> None:
        """Kill the first process with a client that has had a job for some time."""
        for machine in self.world.machines:
            if self._is_known_to_deliver(machine):
                machine.kill(BEFORE_TURN, False)
                self._start_later(machine, 6 * SECOND)
                return
        self._at(self.world.loop.now + 50 * MS, self.kill_with_client)

    def _is_known_to_deliver(self, machine: "Machine") -> bool:
        others = [one for one in self.world.machines if one is not machine]
        return any(
            HELD_FOR < machine.now() - job.taking.last_seen < job.retry * 200
            and any(one.live_copy(job.id) for one in others)
            for job in machine.jobs.values()
            if job.taking is not None and machine.node.store.in_hand_for(job) > 0
        )

    def kill_all(self) -> None:
        """Kill all processes at once."""
        self.world.note("* all die")
        for machine in self.world.machines:
            if machine.up and not machine.stopping:
                machine.kill(self.rng.choice(STAGES), False)
                self._start_later(machine, self.rng.randrange(100 * MS, 2 * SECOND))

    def stop(self) -> None:
        """Stop a process cleanly, and restart it."""
        machine = self._some()
        handover = self.rng.random() < 0.5
        delay = self.rng.randrange(50 * MS, 2 * SECOND)

        def stop() -> None:
            self._when_given.pop(machine.index, None)
            if machine.up and not (machine.dying or machine.stopping):
                machine.stop(handover)
                machine.start_with_queues = handover
                self._start_later(machine, delay)

        if self.only_stops:
            incarnation = machine.incarnation
            self._when_given[machine.index] = stop
            self._at(
                self.world.loop.now + SECOND,
                lambda: stop() if machine.incarnation == incarnation else None,
            )
        else:
            stop()

    def jobs_given_to(self, machine: "Machine") -> None:
        """Another node has just sent jobs to ``machine``, which may be to stop now."""
        stop = self._when_given.pop(machine.index, None)
        if stop is not None:
            self._at(self.world.loop.now, stop)

    def _start_later(self, machine: "Machine", delay: int) -> None:
        self._at(self.world.loop.now + delay, lambda: self.world.revive(machine))

    def pause(self) -> None:
        """Suspend a process: SIGSTOP, or a machine that swaps."""
        machine = self._some()
        length = self.rng.randrange(200 * MS, 6 * SECOND)
        self.world.note(f"* {machine.index} stands still for {length // MS} ms")
        machine.pause(length)

    def clock(self) -> None:
        """Change the drift of a clock, or make it jump, as if the machine had been suspended."""
        machine = self._some()
        if self.world.steady_clocks:
            return
        rate = 1_000_000 + self.rng.randrange(-50_000, 50_001)
        jump = self.rng.choice((0, 0, 2_000, 20_000, 120_000))
        self.world.note(f"* clock of {machine.index}: rate {rate}, jump {jump} ms")
        if jump:
            machine.pause(self.rng.randrange(500 * MS))
        machine.change_clock(rate, jump)

    # ---- operators --------------------------------------------------------------------------

    def pause_queue(self) -> None:
        """Pause a queue for a while, as an operator would."""
        machine = self._some()
        queue = self.rng.choice(QUEUES)
        state = self.rng.choice((b"in", b"out", b"all"))
        where = [b"bcast"] if self.rng.random() < 0.5 else []
        self.world.note(f"* {machine.index}: PAUSE {queue.decode()} {state.decode()} {where}")
        self._command(machine, [b"PAUSE", queue, state, *where])
        self._at(
            self.world.loop.now + self.rng.randrange(4 * SECOND),
            lambda: self._command(machine, [b"PAUSE", queue, b"none", *where]),
        )

    def leave(self) -> None:
        """Begin to take a node out of the cluster."""
        machine = self.world.machines[self.world.plan.leaving]
        machine.leave = True
        self.world.note(f"* {machine.index} leaves")
        self._command(machine, [b"CLUSTER", b"LEAVING", b"yes"])
        self.copying = self.world.plan.seed % 3 > 0
        if self.world.plan.seed % 3 == 1:
            for one in self.world.machines:
                actor = Actor(self.world, f"copier {one.index}")
                self.world.operators.append(actor)
                actor.start(copier(actor, one))
        elif self.copying:
            self._hand_over(machine)
        self._at(self.world.loop.now + SECOND, lambda: self.remove(machine))

    def _hand_over(self, machine: "Machine") -> None:
        """Have ``machine`` give away what it has, also after it started again."""
        if not machine.removed:
            self._command(machine, [b"CLUSTER", b"HANDOVER"])
            self._at(self.world.loop.now + 2 * SECOND, lambda: self._hand_over(machine))

    def remove(self, machine: "Machine") -> None:
        """Once a leaving node has no more jobs, or none that needs it, switch it off for good, and
        tell the others to forget it."""
        world = self.world
        there = machine.up and not machine.stopping
        if there and machine.node.peers.leaving and self._is_free(machine):
            machine.removed = True
            del world.addresses[machine.id]
            world.oracle.leaves(machine)
            machine.stop(handover=False)
            world.usable = [one for one in world.machines if one is not machine]
            for other in world.usable:
                self._command(other, [b"CLUSTER", b"FORGET", machine.id])
        else:
            self._at(world.loop.now + SECOND // 2, lambda: self.remove(machine))

    def _is_free(self, machine: "Machine") -> bool:
        """Whether no job needs ``machine``, which is leaving."""
        if machine.jobs.count == 0:
            return True
        if machine.node.handover.active:
            return machine.node.handover.left() == 0
        if not self.copying or any(job.state == ACKED for job in machine.jobs.values()):
            return False
        for one in self.world.machines:
            if not one.up or one.stopping or one.node.loading or one.node.paging.pages.jobs:
                return False
            if one is not machine and not one.node.peers.leaves(machine.id):
                return False
            few = one.node.few_copies
            few.look()
            if any(few.is_short(job) or few.lacks(job) for job in one.jobs.values()):
                return False
        return True

    def _command(self, machine: "Machine", request: list[bytes]) -> None:
        actor = Actor(self.world, f"operator {self.world.loop.now}")
        self.world.operators.append(actor)
        actor.start(commander(actor, machine, request))


def shaped(shape: str, count: int, rng: Random) -> list[tuple[int, int]]:
    """The paths (from, to) that a partition of ``shape`` cuts between ``count`` machines."""
    order = rng.sample(range(count), count)
    pairs = [(a, b) for a in order for b in order if a != b]
    if shape == "one":
        return [(a, b) for a, b in pairs if order[0] in (a, b)]
    if shape == "one-way":
        # The others do not hear the first few.
        mute = order[: rng.randrange(1, count)]
        return [(a, b) for a, b in pairs if a in mute and b not in mute]
    if shape == "ring":
        # Each node sees only its neighbours.
        place = {index: at for at, index in enumerate(order)}
        return [(a, b) for a, b in pairs if (place[a] - place[b]) % count not in (1, count - 1)]
    side = {index: at % 2 for at, index in enumerate(order)}
    if shape == "bridge":
        # Two halves with only one node in common.
        return [(a, b) for a, b in pairs if order[0] not in (a, b) and side[a] != side[b]]
    return [(a, b) for a, b in pairs if side[a] != side[b]]
