"""Bulk actions: which jobs are counted, what is done, and what is reported."""

from collections.abc import Callable, Sequence
from typing import cast

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from disque_console.io.bulk import REMEMBERED, RUNS, Bulks
from disque_console.io.calls import Calls
from disque_console.model.bulk import MOST, Bulk, Phase, Walk
from disque_console.model.job_scans import JobFilter
from disque_trio.overview.nodes import Nodes
from disque_trio.resp.command import Argument
from disque_trio.respclient.connection import Reply
from disque_trio.respclient.errors import ConnectionLost, ReplyError, reply_error

Node = Callable[[Sequence[Argument]], Reply]


def job(number: int) -> str:
    return f"D-aaaaaaaa-{number:024d}-05a1"


class Cluster:
    """Nodes with jobs, which answer JSCAN two jobs at a time and execute actions.

    Attributes:
        jobs: by the address of the node. gone: addresses of unreachable nodes.
        refuses: jobs that UPDATEJOB does not change. late: those that it changes, but a holder of
            them does not answer.
    """

    def __init__(self, *jobs: Sequence[int]) -> None:
        self.nodes = Nodes()
        self.jobs = {f"n{at}:1": [job(number) for number in mine] for at, mine in enumerate(jobs)}
        self.gone: set[str] = set()
        self.refuses: set[str] = set()
        self.late: set[str] = set()
        self.maybe = False
        self.sent: list[tuple[str, Sequence[Argument]]] = []
        for at, address in enumerate(self.jobs):
            self.nodes.responded(address, f"{at}" * 40, 0.0)
        self.bulks = Bulks(self.nodes)
        self.meanwhile: Callable[[], None] = lambda: None

    async def to(self, address: str, *command: Argument) -> Reply:
        await trio.lowlevel.checkpoint()
        if address in self.gone:
            return ConnectionLost("refused")
        cursor = int(str(command[1]))
        mine = self.jobs[address]
        ids = [id.encode() for id in mine[cursor : cursor + 2]]
        following = cursor + 2 if cursor + 2 < len(mine) else 0
        return [str(following).encode(), list(ids)]

    async def many(self, address: str, commands: Sequence[Sequence[Argument]]) -> list[Reply]:
        await trio.lowlevel.checkpoint()
        self.sent += [(address, command) for command in commands]
        if address in self.gone or self.maybe:
            return [ConnectionLost("broke", maybe_executed=self.maybe) for _ in commands]
        self.meanwhile()
        return [self._answer(command) for command in commands]

    def _answer(self, command: Sequence[Argument]) -> Reply:
        ids = [str(word) for word in command[1:] if str(word).startswith("D-")]
        if self.late.intersection(ids):
            return reply_error("NOREPL Timeout reached")
        if command[0] == "UPDATEJOB":
            return ReplyError("DELIVERED", "a worker has it") if ids[0] in self.refuses else "OK"
        here = {id for mine in self.jobs.values() for id in mine}
        return len(here.intersection(ids) - self.refuses)

    def begin(self, action: str = "job-cancel", **fields: str) -> Bulk:
        return self.bulks.begin(action, fields, JobFilter(queue="q"), "me", "/jobs")

    def go_on(self, run: Bulk, seconds: float = 100.0) -> None:
        trio.run(self.bulks.go_on, run, cast(Calls, self), seconds)

    def do(self, run: Bulk) -> None:
        """Count, confirm and execute."""
        self.go_on(run)
        assert run.phase is Phase.ASKING
        self.bulks.confirm(run)
        self.go_on(run)

    @property
    def acted_on(self) -> list[str]:
        return [str(word) for _, sent in self.sent for word in sent if str(word).startswith("D-")]


def test_all_are_counted_once_confirmed_and_done() -> None:
    cluster = Cluster(range(5), range(3, 9))
    run = cluster.begin()
    cluster.go_on(run)
    assert (run.phase, run.count, cluster.sent) == (Phase.ASKING, 9, [])
    assert "Cancel 9 jobs?" in run.question
    cluster.bulks.confirm(run)
    cluster.go_on(run)
    assert (run.phase, run.done, dict(run.refused), run.found) == (Phase.DONE, 9, {}, {})
    assert sorted(cluster.acted_on) == [job(number) for number in range(9)]


def test_jobs_added_after_the_count_stay() -> None:
    cluster = Cluster(range(3))
    run = cluster.begin()
    cluster.go_on(run)
    cluster.jobs["n0:1"].append(job(99))
    cluster.bulks.confirm(run)
    cluster.go_on(run)
    assert job(99) not in cluster.acted_on
    assert run.done == 3


def test_jobs_that_no_longer_match_are_left_alone() -> None:
    cluster = Cluster(range(6))
    run = cluster.begin()
    cluster.go_on(run)
    cluster.jobs["n0:1"] = cluster.jobs["n0:1"][3:]
    cluster.bulks.confirm(run)
    cluster.go_on(run)
    assert (run.phase, run.done, len(run.found)) == (Phase.DONE, 3, 3)


def test_the_result_shows_jobs_that_another_operator_took_first() -> None:
    cluster = Cluster(range(4))
    cluster.refuses = {job(1)}
    run = cluster.begin()
    cluster.do(run)
    assert run.done == 3
    assert sum(run.refused.values()) == 1
    assert "gone" in next(iter(run.refused))


def test_the_reasons_of_refusals_are_shown() -> None:
    cluster = Cluster(range(4))
    cluster.refuses = {job(0), job(2)}
    run = cluster.begin("job-move", to="elsewhere")
    cluster.do(run)
    assert (run.done, dict(run.refused)) == (2, {"DELIVERED a worker has it": 2})
    assert all(sent[2:] == ("QUEUE", b"elsewhere") for _, sent in cluster.sent)


def test_changes_that_a_node_has_not_confirmed_are_done() -> None:
    cluster = Cluster(range(4))
    cluster.late, cluster.refuses = {job(1), job(3)}, {job(2)}
    run = cluster.begin("job-move", to="elsewhere")
    cluster.do(run)
    assert (run.done, run.unconfirmed, sum(run.refused.values())) == (3, 2, 1)
    assert run.result["unconfirmed"] == 2


def test_several_times_are_changed_together() -> None:
    cluster = Cluster(range(2))
    run = cluster.begin("job-change", delay="1.5", retry="9")
    cluster.do(run)
    assert run.done == 2
    assert cluster.sent[0][1][2:] == ("DELAY", "1.5", "RETRY", "9")
    assert "DELAY 1.5 s, RETRY 9 s" in run.question


@pytest.mark.parametrize("maybe", [False, True])
def test_a_node_that_dies_halfway_is_reported_and_the_run_continues(maybe: bool) -> None:
    cluster = Cluster(range(4), range(4, 6))
    run = cluster.begin()
    cluster.go_on(run)
    cluster.bulks.confirm(run)
    if maybe:
        cluster.maybe = True
        cluster.go_on(run)
        assert (run.unknown, run.done, len(run.found)) == (4, 0, 2)
        assert set(run.walk.failed) == {"n0:1", "n1:1"}
        return
    cluster.gone.add("n0:1")
    cluster.go_on(run)
    assert (run.phase, run.unknown, run.done, len(run.found)) == (Phase.DONE, 0, 2, 4)
    assert set(run.walk.failed) == {"n0:1"}


def test_a_copy_elsewhere_replaces_a_job_whose_node_fails_first() -> None:
    cluster = Cluster(range(2), range(2))
    run = cluster.begin()
    cluster.go_on(run)
    cluster.bulks.confirm(run)
    cluster.gone.add("n0:1")
    cluster.go_on(run)
    assert (run.done, run.found) == (2, {})


def test_a_node_unreachable_from_the_start_is_reported() -> None:
    cluster = Cluster(range(2), range(2, 4))
    cluster.nodes.lost("n1:1", "no answer", 1.0)
    run = cluster.begin()
    cluster.do(run)
    assert (run.count, run.done) == (2, 2)
    assert run.walk.failed == {"n1:1": "unreachable"}


def test_it_stops_when_told_to() -> None:
    cluster = Cluster(range(10))
    run = cluster.begin()
    cluster.go_on(run)
    cluster.bulks.confirm(run)
    cluster.meanwhile = run.stop
    cluster.go_on(run)
    assert (run.phase, run.done, len(run.found)) == (Phase.STOPPED, 2, 8)
    cluster.go_on(run)
    assert run.done == 2


def test_a_round_ends_at_its_time_limit_and_the_next_continues() -> None:
    cluster = Cluster(range(10))
    run = cluster.begin()
    rounds = 0
    while run.phase is Phase.COUNTING:
        cluster.go_on(run, 1e-9)
        rounds += 1
    assert (rounds, run.count) == (5, 10)


def test_without_matches_there_is_nothing_to_confirm() -> None:
    cluster = Cluster([])
    run = cluster.begin()
    cluster.do(run)
    assert (run.phase, run.count, cluster.sent) == (Phase.DONE, 0, [])


def test_matches_beyond_the_limit_are_cut_off() -> None:
    run = Bulk("id", "job-cancel", {}, JobFilter(), "me", "/", Walk(["a"]), 0.0)
    run.counts(map(job, range(MOST + 5)))
    assert (run.phase, run.count, run.cut) == (Phase.ASKING, MOST, True)


@pytest.mark.parametrize(
    ("action", "fields"), [("job-move", {}), ("job-change", {}), ("job-change", {"ttl": "x"})]
)
def test_invalid_fields_are_refused_before_counting(action: str, fields: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"."):
        Cluster(range(2)).begin(action, **fields)


def test_runs_belong_to_their_owner_and_expire() -> None:
    cluster = Cluster([])
    first = cluster.begin()
    assert cluster.bulks.get(first.id, "me") is first
    assert cluster.bulks.get(first.id, "you") is None
    for _ in range(RUNS):
        cluster.begin()
    assert cluster.bulks.get(first.id, "me") is None


def test_the_audit_gets_the_filter_and_the_numbers() -> None:
    cluster = Cluster(range(3))
    run = cluster.begin()
    cluster.do(run)
    assert run.result == {
        "filter": {"queue": "q"}, "jobs": 3, "done": 3, "unconfirmed": 0, "refused": {},
        "unknown": 0, "untouched": 0, "nodes_failed": {},
    }  # fmt: skip


def test_a_stopped_run_knows_the_results_of_commands_already_sent() -> None:
    cluster = Cluster(range(10))
    run = cluster.begin()
    cluster.go_on(run)
    cluster.bulks.confirm(run)
    heard: list[int] = []

    async def stop() -> None:
        await cluster.bulks.stop(run)
        heard.append(run.done)

    async def both() -> None:
        async with trio.open_nursery() as nursery:
            cluster.meanwhile = lambda: nursery.start_soon(stop)
            await cluster.bulks.go_on(run, cast(Calls, cluster), 100.0)
            await wait_all_tasks_blocked()

    trio.run(both)
    assert run.phase is Phase.STOPPED
    assert set(heard) == {run.done}


async def test_a_second_page_of_a_run_waits_for_the_first(autojump_clock: MockClock) -> None:
    cluster = Cluster(range(10))
    run = cluster.begin()
    hung = trio.Event()

    async def to(address: str, *command: Argument) -> Reply:
        await hung.wait()
        return ConnectionLost("refused")

    cluster.to = to  # type: ignore[method-assign]
    calls = cast(Calls, cluster)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(cluster.bulks.go_on, run, calls)
        await wait_all_tasks_blocked()
        begun = trio.current_time()
        await cluster.bulks.go_on(run, calls, 2.0)
        assert trio.current_time() - begun == 2.0
        hung.set()
        await cluster.bulks.go_on(run, calls, 2.0)
        assert trio.current_time() - begun == 2.0
        assert run.phase is Phase.ASKING


def test_all_runs_together_keep_a_limited_number_of_jobs() -> None:
    cluster = Cluster([])
    runs = [cluster.begin() for _ in range(REMEMBERED // MOST + 3)]
    for number, run in enumerate(runs):
        run.found = dict.fromkeys(map(str, range(MOST)))
        run.touched += number
    newest = cluster.begin()
    kept = [run for run in runs if cluster.bulks.get(run.id, "me")]
    assert kept == runs[-REMEMBERED // MOST :]
    assert cluster.bulks.get(newest.id, "me") is newest
