"""What becomes of the jobs of a process that has died."""

import math
import mmap
import random

import pytest

from disque_trio.job_past import NOTHING, Past
from disque_trio.process.fleet import Member, State
from disque_trio.worker import ledger
from disque_trio.worker.deaths import APART_BY, Why, returns, why_of
from disque_trio.worker.lease import QUIET, Lease
from disque_trio.worker.ledger import APART, ENDED, RUNNING, TAKEN, Ledger, LedgerEntry

IDS = [f"D-{number:038}" for number in range(8)]
HOW = "its process died: killed by SIGKILL"


def entry(number: int, state: int = RUNNING, past: Past = NOTHING, **options: float) -> LedgerEntry:
    return LedgerEntry(IDS[number], "127.0.0.1:7711", state, past=past, **options)


def given(*entries: LedgerEntry, why: Why = "died") -> dict[str, tuple[float, Past]]:
    """The delays and pasts with which jobs come back."""
    back = returns(entries, why, HOW, 100.0, random.Random(1))
    return {one.entry.id: (one.delay, Past.read(one.reason.decode())) for one in back}


def test_jobs_of_a_process_that_died_come_back_apart_from_each_other() -> None:
    back = given(*map(entry, range(8)))
    assert {past for _, past in back.values()} == {Past(1, 1, 0, HOW)}
    delays = sorted(delay for delay, _ in back.values())
    assert delays == pytest.approx([0.5 + APART_BY * number for number in range(8)])


def test_a_job_that_had_come_again_to_its_process_is_given_back_once() -> None:
    assert given(entry(0, ENDED), entry(0), entry(0, ENDED)) == {IDS[0]: (0.5, Past(1, 1, 1, HOW))}
    back = returns([entry(0), entry(0, ENDED)], "died", HOW, 100.0, random.Random(1))
    assert [one.entry.state for one in back] == [RUNNING]


def test_suspects_need_not_come_apart_since_they_run_alone() -> None:
    back = given(*[entry(number, past=Past(1, 1)) for number in range(8)])
    assert set(back.values()) == {(1.0, Past(2, 2, 0, HOW))}


def test_a_crash_counts_against_a_job_that_was_alone_in_its_process() -> None:
    others = [entry(1, APART), entry(2, ENDED), entry(3, TAKEN)]
    assert given(entry(0), *others)[IDS[0]][1] == Past(1, 1, 1, HOW)


def test_a_crash_does_not_count_against_jobs_whose_tasks_did_not_run_there() -> None:
    back = given(entry(0), entry(1, APART, Past(2, 2)), entry(2, ENDED), entry(3, TAKEN))
    assert (back[IDS[1]][1].crashes, back[IDS[2]][1].crashes) == (2, 0)
    assert back[IDS[3]] == (0, Past())


def test_jobs_of_a_process_that_was_to_stop_come_back_at_once_and_nothing_counts() -> None:
    back = given(entry(0), entry(1, past=Past(2, 1, 1)), why="stopped")
    assert [(delay, past.crashes) for delay, past in back.values()] in (
        [(0, 0), (0, 1)],
        [(0, 1), (0, 0)],
    )


def test_a_task_that_blocked_its_process_has_failed_and_the_others_have_not() -> None:
    back = given(entry(0, deadline=99.0), entry(1, deadline=200.0), entry(2), why="late")
    assert back[IDS[0]][1].returned == 0
    assert back[IDS[0]][1].said.startswith("TimeoutError: ")
    assert [(back[id][0], back[id][1].crashes) for id in IDS[1:3]] == [(0, 0), (0, 0)]


@pytest.mark.parametrize(
    ("state", "killed", "status", "why"),
    [
        (State.SERVING, "", -11, "died"),
        (State.SERVING, "", 0, "died"),
        (State.RETIRING, "", -11, "died"),
        (State.RETIRING, "", 0, "stopped"),
        (State.RETIRING, "reload", -9, "stopped"),
        (State.SERVING, "blocked", -9, "late"),
        (State.SERVING, "stuck", -9, "died"),
    ],
)
def test_why_a_process_has_ended(state: State, killed: str, status: int, why: Why) -> None:
    member = Member(0, 0, 0, first=False, old=None)
    member.state, member.reason, member.killed = state, killed, bool(killed)
    assert why_of(member, status) == why


# ---- the ledger -----------------------------------------------------------------------------


def new_ledger() -> Ledger:
    return Ledger(mmap.mmap(-1, 100 + ledger.SIZE), 100)


def test_a_ledger_tells_the_jobs_and_what_they_have_been_through() -> None:
    book = new_ledger()
    places = [book.take(id, "[::1]:7711") for id in IDS[:4]]
    book.begin(places[1], RUNNING, 12.5, Past(3, 2, 1))
    book.begin(places[2], APART, math.inf, Past(70_000))
    settled: list[bool] = []
    book.end(places[3], lambda: bool(settled))
    assert book.entries() == [
        LedgerEntry(IDS[0], "[::1]:7711", TAKEN),
        LedgerEntry(IDS[1], "[::1]:7711", RUNNING, 12.5, Past(3, 2, 1)),
        LedgerEntry(IDS[2], "[::1]:7711", APART, math.inf, Past(65_535)),
        LedgerEntry(IDS[3], "[::1]:7711", ENDED),
    ]
    book.drop(places[0])
    book.sweep()
    assert [one.id for one in book.entries()] == IDS[1:4]
    settled.append(True)
    book.sweep()
    assert [one.id for one in book.entries()] == IDS[1:3]
    assert book.take(IDS[7], "x" * 200) in (places[0], places[3])
    assert {one.id: one.address for one in book.entries()}[IDS[7]] == ""


def test_a_ledger_that_is_full_does_without_the_others() -> None:
    book = new_ledger()
    for _ in range(ledger.CAPACITY):
        book.take(IDS[0], "")
    place = book.take(IDS[1], "")
    book.begin(place, RUNNING, 1, Past())
    book.end(place, lambda: True)
    book.drop(place)
    assert {one.id for one in book.entries()} == {IDS[0]}
    assert len(book.entries()) == ledger.CAPACITY


# ---- keeping the jobs of a process that does not answer -----------------------------------------


def test_a_process_that_answers_keeps_its_jobs_itself() -> None:
    lease = Lease()
    assert not lease.is_due(QUIET, 100)
    assert lease.is_due(QUIET + 0.1, 100)


def test_jobs_are_kept_at_half_of_their_retry_times() -> None:
    lease = Lease()
    jobs = [entry(0), entry(1)]
    assert lease.wanted(jobs, 100) == jobs
    with lease.renewing(100) as kept:
        assert not lease.is_due(9, 105)  # one at a time
        kept |= {IDS[0]: 4.0}
    assert not lease.is_due(9, 100.5)
    assert lease.is_due(9, 101)
    assert lease.wanted(jobs, 101.9) == jobs[1:]  # nobody has taken that one
    assert lease.wanted(jobs, 102) == jobs
    assert not lease.is_due(0, 103)
    assert lease.wanted(jobs, 103) == jobs


def test_a_task_beyond_its_timeout_does_not_keep_its_job() -> None:
    assert Lease().wanted([entry(0, deadline=90.0), entry(1, deadline=99.0)], 100) == [
        entry(1, deadline=99.0)
    ]
