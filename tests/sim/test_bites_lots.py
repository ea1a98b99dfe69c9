"""The checks find it if lots of jobs are believed to be queued where they are not."""

import pytest

from disque_trio.node.core import node as core_node
from disque_trio.node.core.lifecycle.lots import _ENTRY, Lot, Lots
from tests.simulator.plan import SAFETY
from tests.simulator.spoiled import MadeOf, found

if not core_node.__file__.endswith(".py"):
    pytest.skip("a compiled node cannot be made worse", allow_module_level=True)

LOST = ("never delivered", "left on node")
SEED = 3  # of a run in which other holders have copies of all that is lost


_lost: set[bytes] = set()  # ids; none is lost twice


@pytest.fixture(autouse=True)
def begin_again() -> None:
    """Lose jobs of earlier runs again."""
    _lost.clear()


def lose_one(lots: Lots, lot: Lot) -> None:
    """Lose a job of ``lot``, which is queued here."""
    for job in lots._timers.in_bucket(lot.bucket)[:1]:
        if job.id not in _lost:
            _lost.add(job.id)
            lots._store.delete(job)


class LosingLots(Lots):
    """Lose a job of each lot before others are told of it."""

    def _tell(self, lot: Lot) -> None:
        lose_one(self, lot)
        super()._tell(lot)


class TrustingLots(Lots):
    """The same; but go on telling of the lot, and believe others, whatever jobs it has."""

    def _tell(self, lot: Lot) -> None:
        lose_one(self, lot)
        super()._tell(lot)
        if lot.bucket not in self._by_bucket:
            again = Lot(self._timers.make_lot(), b"", lot.number, lot.holders, lot.retry)
            again.due = self._next_time(lot.retry)
            self._own[lot.number] = again
            self._add(again)
            entry = _ENTRY.pack(lot.number, 0, 0, bytes(8))
            for node in lot.holders:
                self._told.setdefault(node, []).append(entry)

    def _is_as_told(self, node: bytes, number: int, count: int, until: int, digest: bytes) -> bool:
        lot = self._others.get((node, number))
        if lot is not None:
            jobs = self._timers.in_bucket(lot.bucket)
            count, digest = len(jobs), lot.digest_of(jobs)
        return super()._is_as_told(node, number, count, 0, digest)


def test_jobs_that_are_lost_from_lots_are_queued_by_other_holders(made_of: MadeOf) -> None:
    assert not found(made_of(LosingLots), SAFETY, *LOST, first=SEED, seeds=1)
    assert len(_lost) > 5


def test_lots_that_are_confirmed_though_a_job_is_missing_are_found(made_of: MadeOf) -> None:
    assert found(made_of(TrustingLots), SAFETY, *LOST, first=SEED, seeds=1)


class PatientLots(Lots):
    """Never ask about the jobs of lots of which nothing was heard."""

    def _break_up(self, lot: Lot) -> None:
        if lot.due > self._machine.now:
            super()._break_up(lot)


def test_copies_that_wait_for_news_of_their_lot_for_ever_are_found(made_of: MadeOf) -> None:
    assert found(made_of(PatientLots), SAFETY, "left on node", first=4)
