"""Thousands of crashes of the machine and the disk under a node in use, each from a seed.

A crash leaves what was synced, a random part of the writes after that, and either name of a file
whose rename was not synced. With ``always`` every confirmed job has to come back, unless it was
acknowledged; no at-most-once job may be delivered twice; and no job whose acknowledgement was
synced may come back. Whatever the checksums beside the file are then, they name no damage.
"""

import os
import random
from pathlib import Path

import pytest

from disque_trio.aof.checksums import ENDING
from disque_trio.aof.dump import Dump
from disque_trio.aof.format import AofError
from disque_trio.aof.loader import Loader
from disque_trio.aof.writer import AofWriter
from tests.support.aof_disk import SimulatedDisk
from tests.support.node_bench import Bench

SEEDS_A_TEST = int(os.environ.get("DISK_SEEDS", "60"))


class Machine:
    """A node with its file on a simulated disk, driven as the server does in a turn."""

    def __init__(self, seed: int, policy: str, odds: float, soon: bool = False) -> None:
        self.random = random.Random(seed)
        self.disk = SimulatedDisk(seed, odds=0.0)
        self.bench = Bench(seed)
        self.node = self.bench.node
        self.node.journaling = True
        self.writer = AofWriter(self.disk, "aof", policy)
        self.disk.sync_directory("aof")
        self.disk.odds = odds
        self.dump: Dump | None = None
        self.soon = soon  # a synced dump takes the name without another sync
        self.dump_synced_at = 0
        self.confirmed: dict[bytes, bool] = {}  # at-least-once jobs: whether the ACK was confirmed
        self.confirmed_at: dict[bytes, int] = {}
        self.synced_at = self.bench.now
        self.once: dict[bytes, int] = {}  # at-most-once jobs: deliveries
        self.acked: set[bytes] = set()
        self.covered: list[int] = []  # bytes with checksums after each crash

    def turn(self) -> bool:
        records, self.node.journal = self.node.journal, []
        if not records:
            return True
        if self.dump is not None:
            try:
                self.dump.append(records)
            except OSError:
                self.dump.abandon()
                self.dump = None
        good = self.writer.append(records)
        self.tell_trouble()
        return good

    def tell_trouble(self) -> None:
        problem = self.writer.problem
        self.node.set_trouble(False, "", problem, problem != "")

    def rewrite(self) -> None:
        try:
            if self.dump is None:
                self.dump = Dump(self.disk, "aof", self.node)
                self.dump_synced_at = 0
            if not self.dump.complete:
                self.dump.step(self.random.choice([1, 5, 1000]))
            soon = self.soon and not self.writer.distrusted
            if soon and self.dump.complete and self.bench.now - self.dump_synced_at > 500:
                self.dump.sync()
                self.dump_synced_at = self.bench.now
            elif self.dump.complete:
                self.writer.take_over(self.dump, soon)
                self.dump = None
                self.tell_trouble()
        except OSError:
            if self.dump is not None:
                self.dump.abandon()
                self.dump = None

    def cover(self) -> None:
        """Add checksums, which may fail."""
        cover = self.writer.cover_call(self.bench.now / 1000)
        if cover is not None:
            try:
                cover()
            except OSError:
                pass
            self.writer.sync_ended(None)

    def step(self) -> None:
        if self.random.random() < 0.3:
            self.cover()
        what = self.random.random()
        bench = self.bench
        if what < 0.4:
            once = self.random.random() < 0.3
            options = ("RETRY", "0") if once else ("RETRY", "1")
            reply = bench("ADDJOB", "q", "x" * self.random.randrange(50), "0", *options)
            if self.turn() and isinstance(reply, bytes):
                if once:
                    self.once[reply] = 0
                else:
                    self.confirmed[reply] = False
                    self.confirmed_at[reply] = bench.now
        elif what < 0.65:
            lagged = self.node.lagging
            id = bench.get()
            assert not (lagged and id in self.once)
            # The delivery is sent in any case.
            self.turn()
            if id in self.once:
                self.once[id] += 1
        elif what < 0.8 and self.confirmed:
            id = self.random.choice(list(self.confirmed))
            if bench("ACKJOB", id) == 1:
                self.acked.add(id)
                if self.turn():
                    self.confirmed[id] = True
        elif what < 0.9:
            self.rewrite()
        elif what < 0.95:
            if self.writer.distrusted:
                self.rewrite()
            elif self.writer.problem:
                self.writer.retry()
                self.tell_trouble()
        else:
            bench.advance(0.5)
            self.turn()
            if self.writer.policy == "everysec" and bench.now - self.synced_at >= 1000:
                self.synced_at = bench.now
                self.writer.sync()
                self.tell_trouble()

    def crash_and_load(self, directory: Path) -> "Bench":
        path = directory / "aof"
        path.write_bytes(self.disk.crash("aof"))
        (directory / f"aof{ENDING}").write_bytes(self.disk.crash(f"aof{ENDING}"))
        after = Bench(99)
        after.now = self.bench.now
        after.node.now = after.now
        loader = Loader(str(path), after.node, False)
        damage: AofError | None = None
        try:
            for _ in loader.steps():
                pass
        except AofError as found:
            damage = found
        assert damage is None or damage.truncated, damage
        checked = loader.checked
        if checked is not None:
            assert not checked.marks
            self.covered.append(checked.covered)
        return after


@pytest.mark.parametrize("odds", [0.0, 0.05])
@pytest.mark.parametrize("batch", range(4))
def test_with_always_no_confirmed_job_is_lost_and_none_is_done_twice_that_must_not(
    tmp_path: Path, odds: float, batch: int
) -> None:
    covered = 0
    for seed in range(batch * SEEDS_A_TEST, (batch + 1) * SEEDS_A_TEST):
        machine = Machine(seed, "always", odds)
        for _ in range(machine.random.randrange(1, 60)):
            machine.step()
        after = machine.crash_and_load(tmp_path)
        for id, acked in machine.confirmed.items():
            there = after.node.store.jobs.get(id) is not None
            if acked:
                assert not there, f"seed {seed}: {id!r} was acknowledged"
            elif id not in machine.acked:
                assert there, f"seed {seed}: {id!r} was confirmed"
        after.advance(5)
        while (id := after.get()) is not None:
            if id in machine.once:
                machine.once[id] += 1
        for id, deliveries in machine.once.items():
            assert deliveries <= 1, f"seed {seed}: {id!r}"
        covered += sum(machine.covered)
    assert covered


def test_without_syncing_a_crash_of_the_process_alone_loses_nothing(tmp_path: Path) -> None:
    for seed in range(SEEDS_A_TEST):
        machine = Machine(seed, "no", 0.0)
        for _ in range(machine.random.randrange(1, 60)):
            machine.step()
        for file in machine.disk.names.values():
            file.synced = len(file.data)  # the kernel is alive and writes it out
        machine.disk.sync_directory("aof")
        after = machine.crash_and_load(tmp_path)
        for id in machine.confirmed:
            assert (after.node.store.jobs.get(id) is None) == (id in machine.acked), f"seed {seed}"


@pytest.mark.parametrize("soon", [False, True])
@pytest.mark.parametrize("odds", [0.0, 0.05])
def test_with_everysec_at_most_the_last_two_seconds_are_lost(
    tmp_path: Path, odds: float, soon: bool
) -> None:
    for seed in range(2 * SEEDS_A_TEST):
        machine = Machine(seed, "everysec", odds, soon)
        now = machine.bench.now
        for _ in range(machine.random.randrange(1, 200)):
            machine.step()
            if not machine.writer.problem:
                now = machine.bench.now  # nothing is confirmed after this
        after = machine.crash_and_load(tmp_path)
        for id in machine.confirmed.keys() - machine.acked:
            if after.node.store.jobs.get(id) is None:
                age = now - machine.confirmed_at[id]
                assert age <= 2000, f"seed {seed}: {id!r} was confirmed {age} ms ago"
