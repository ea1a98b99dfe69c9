"""The jobs of schedules: when they are added, by which node, and that each is added only once."""

from typing import Any
from zlib import crc32

import pytest

from disque_trio.node.core.shared.schedule_words import format_file, parse_file
from disque_trio.node.core.shared.schedules import Schedules
from disque_trio.node.core.ticks import GRACE, LINK_TIME, MOST, PLAN_AFTER, RETRY, STAGGER
from disque_trio.respserver.client import Client
from tests.support.mesh import Mesh
from tests.support.node_bench import START, Bench

MINUTE = 60


@pytest.fixture
def mesh() -> Mesh:
    made = Mesh(3)
    made.advance(1)
    return made


def advance(bench: Bench, seconds: int) -> None:
    """Let time pass on a node that is alone."""
    for _ in range(seconds):
        bench.advance(1)
        bench.node.commit()


def put(mesh: Mesh, *words: str | int, index: int = 0, name: str = "s") -> None:
    """Set a schedule (CRON SET)."""
    assert mesh[index]("CRON", "SET", name, *words) == b"OK"
    mesh.settle()


def jobs(mesh: Mesh) -> int:
    """Return the number of distinct jobs."""
    return len({job.id for bench in mesh.nodes for job in bench.node.store.jobs.values()})


def first(mesh: Mesh, name: bytes = b"s") -> int:
    """Return the node that adds the jobs of a schedule."""
    return min(range(len(mesh.ids)), key=lambda index: crc32(name + mesh.ids[index]))


def fields(bench: Bench, name: str = "s") -> dict[bytes, Any]:
    """Return the fields of CRON GET."""
    return bench.fields("CRON", "GET", name)


def test_each_tick_adds_a_job_with_its_options(bench: Bench) -> None:
    bench("CRON", "SET", "s", "@every 10s", "q", "body", "RETRY", 777, "PRIORITY", 3)
    advance(bench, 9)
    assert bench.number_queued() == 0
    advance(bench, 1)
    (id,) = bench.get_all()
    shown = bench.show(id)
    assert (shown[b"body"], shown[b"retry"], shown[b"priority"]) == (b"body", 777, 3)
    advance(bench, 50)
    assert bench.number_queued() == 5
    assert bench.info("stats")["total_ticks"] == "6"
    assert bench.info("queues")["schedules"] == "1"


def test_the_last_jobs_are_remembered_until_the_schedule_is_deleted(bench: Bench) -> None:
    bench("CRON", "SET", "s", "@every 10s", "q", "body")
    assert b"runs" not in fields(bench)
    advance(bench, 70)
    runs = fields(bench)[b"runs"]
    assert runs[::2] == [START + 10_000 * number for number in (7, 6, 5, 4, 3)]
    assert sorted(runs[1::2]) == sorted(bench.get_all(count=7)[2:])
    known = bench.node.ticks.schedules
    again = Schedules()
    assert parse_file(b"".join(format_file(known)), again) == []
    assert again.runs == known.runs
    bench("CRON", "SET", "s", "@every 20s", "q", "body")
    assert fields(bench)[b"runs"] == runs
    bench("CRON", "DEL", "s")
    advance(bench, 1)
    bench("CRON", "SET", "s", "@every 20s", "q", "body")
    assert b"runs" not in fields(bench)


def test_a_tick_comes_at_its_moment(bench: Bench) -> None:
    bench("CRON", "SET", "s", "@every 10s", "q", "body")
    advance(bench, 1)
    assert bench.node.next_wake() == START + 10_000


def test_schedules_that_are_set_one_after_the_other_are_looked_at_together(bench: Bench) -> None:
    bench("CRON", "SET", "first", "@every 10s", "q", "body")
    bench.now += PLAN_AFTER - 1
    bench("CRON", "SET", "second", "@every 20s", "q", "body")
    assert bench.node.next_wake() == START + PLAN_AFTER
    bench.now += 1
    bench.node.tick(bench.now)
    assert bench.node.next_wake() == START + 10_000


def test_a_cluster_adds_each_job_once(mesh: Mesh) -> None:
    put(mesh, "@every 10s", "q", "body")
    mesh.advance(MINUTE)
    assert jobs(mesh) == 6
    totals = [int(bench.info("stats")["total_ticks"]) for bench in mesh.nodes]
    assert sorted(totals) == [0, 0, 6]
    assert totals[first(mesh)] == 6
    assert len({fields(bench)[b"done-until"] for bench in mesh.nodes}) == 1


def test_the_next_node_does_it_when_the_first_one_does_not_answer(mesh: Mesh) -> None:
    put(mesh, "@every 60s", "q", "body")
    mesh.isolate(first(mesh))
    others = [bench for index, bench in enumerate(mesh.nodes) if index != first(mesh)]

    def held() -> int:
        return len({job.id for bench in others for job in bench.node.store.jobs.values()})

    mesh.advance((START // 60_000 + 1) * 60 - mesh[0].now / 1000)
    assert held() == 0
    mesh.advance(4 * STAGGER / 1000)
    assert held() == 1


def test_ticks_that_come_faster_than_nodes_wait_for_each_other_are_added_by_the_next_one(
    mesh: Mesh,
) -> None:
    put(mesh, "@every 1s", "q", "body", "REPLICATE", 1)
    mesh.isolate(first(mesh))
    mesh.advance(MINUTE)
    others = [bench for index, bench in enumerate(mesh.nodes) if index != first(mesh)]
    assert sum(int(bench.info("stats")["total_ticks"]) for bench in others) >= 10


def test_schedules_that_are_loaded_before_there_is_a_time_tick() -> None:
    bench = Bench()
    text = b"".join(format_file(scheduled().node.ticks.schedules))
    parse_file(text, bench.node.ticks.schedules)
    bench.node.ticks.sharing.on_change([b"s"])
    advance(bench, 10)
    assert bench.number_queued() == 1


def scheduled() -> Bench:
    """Return a node with a schedule."""
    bench = Bench()
    bench("CRON", "SET", "s", "@every 10s", "q", "body")
    return bench


def test_as_many_copies_as_the_schedule_says_are_made_or_none(mesh: Mesh) -> None:
    put(mesh, "@every 60s", "q", "body", "REPLICATE", 3)
    mesh.isolate(2)
    mesh.advance(2 * MINUTE)
    assert sum(bench.number_queued() for bench in mesh.nodes) == 0
    problems = [str(fields(bench).get(b"problem")) for bench in mesh.nodes[:2]]
    assert any("NOREPL" in problem or "NOUNIQ" in problem for problem in problems)


def test_fewer_copies_are_made_while_a_node_is_missing_that_nobody_misses_yet(mesh: Mesh) -> None:
    put(mesh, "@every 60s", "q", "body")
    missing = next(index for index in range(3) if index != first(mesh))
    mesh.lose = lambda source, target, packet: missing in (source, target)
    mesh.advance(MINUTE)
    mesh.advance(5)
    assert mesh[first(mesh)].number_queued() == 1


def test_a_partition_adds_one_job_on_each_side(mesh: Mesh) -> None:
    put(mesh, "@every 60s", "q", "body", "REPLICATE", 1)
    mesh.isolate(2)
    for index in (0, 1):
        mesh.peers[index].reachable.remove(mesh.ids[2])
    mesh.peers[2].reachable = []
    mesh.advance(MINUTE)
    mesh.advance(20)
    assert jobs(mesh) == 2
    mesh.rejoin(2)
    for peers in mesh.peers:
        peers.reachable = sorted(peers.everyone())
    mesh.advance(30)
    assert jobs(mesh) == 3  # that of the next minute


def test_what_a_node_that_was_lost_may_have_added_is_not_added_anyway() -> None:
    mesh = Mesh(2)
    mesh.advance(1)
    put(mesh, "@every 60s", "q", "body", index=1)
    mesh.advance(LINK_TIME / 1000)
    node = mesh[1].node
    asked: list[list[bytes]] = []

    def handler(node: object, client: Client, args: list[bytes]) -> None:
        asked.append(args)
        client.out.append(b"-NOUNIQ\r\n")

    command = node.find_command(b"addjob")
    assert command is not None
    command.handler = handler
    mesh.isolate(0)
    tick = (mesh[1].now // 60_000 + 1) * 60_000
    mesh.advance((tick + 500 - mesh[1].now) / 1000)
    mesh.peers[1].reachable = []  # it was lost before that, and this is known now
    node.cron(mesh[1].now)
    mesh.advance(50)
    assert len(asked) > 5
    assert not any(b"ANYWAY" in args for args in asked)
    mesh.advance(10)
    asked.clear()
    mesh.advance(10)
    assert asked
    assert all(b"ANYWAY" in args for args in asked)


def test_a_node_that_has_just_started_waits_for_the_others() -> None:
    late = Mesh(3, seed=9)
    late.isolate(0)
    late.peers[0].reachable = []
    put(late, "@every 1s", "q", "body", "REPLICATE", 1)
    late.advance(LINK_TIME / 1000 - 1)
    assert late[0].info("stats")["total_ticks"] == "0"


def test_a_clock_that_was_set_back_while_nodes_start_does_not_keep_them_waiting() -> None:
    mesh = Mesh(2)
    put(mesh, "@every 10s", "q", "body")
    mesh.advance(1)
    for bench in mesh.nodes:
        bench.now -= 3_600_000
    put(mesh, "@every 10s", "q", "body")
    mesh.advance(25)
    assert jobs(mesh) == 2


def test_a_node_that_leaves_lets_the_others_do_it(mesh: Mesh) -> None:
    put(mesh, "@every 10s", "q", "body", "REPLICATE", 1)
    mesh[first(mesh)]("CLUSTER", "LEAVING", "yes")
    for index, peers in enumerate(mesh.peers):
        if index != first(mesh):
            peers.reachable = [id for id in peers.reachable if id != mesh.ids[first(mesh)]]
    mesh.advance(20)
    assert jobs(mesh) == 2
    assert mesh[first(mesh)].info("stats")["total_ticks"] == "0"


def test_what_was_missed_is_skipped(bench: Bench) -> None:
    bench("CRON", "SET", "s", "@every 600s", "q", "body")
    advance(bench, 1)
    bench.now += 3_599_000 + GRACE  # it was away for an hour
    advance(bench, 2)
    assert bench.number_queued() == 0
    assert int(bench.info("stats")["total_ticks_missed"]) > 0
    advance(bench, 600)
    assert bench.number_queued() == 1


def test_the_last_of_what_was_missed_is_made_up_with_catchup(bench: Bench) -> None:
    bench("CRON", "SET", "s", "@every 600s", "CATCHUP", "q", "body")
    advance(bench, 1)
    bench.now += 3_599_000 + GRACE
    advance(bench, 2)
    assert bench.number_queued() == 1


def test_a_tick_that_is_a_little_late_is_not_missed(bench: Bench) -> None:
    bench("CRON", "SET", "s", "@every 600s", "q", "body")
    advance(bench, 1)
    tick = (bench.now // 600_000 + 1) * 600_000
    bench.now = tick + GRACE - 1_000
    advance(bench, 1)
    assert bench.number_queued() == 1


def test_a_job_that_is_refused_is_tried_again(bench: Bench) -> None:
    bench("CRON", "SET", "s", "@every 60s", "q", "body")
    bench("PAUSE", "q", "in")
    advance(bench, 60)
    assert b"PAUSED" in fields(bench)[b"problem"]  # type: ignore[operator]
    bench("PAUSE", "q", "none")
    advance(bench, 2 * RETRY // 1000)
    assert bench.number_queued() == 1
    assert b"problem" not in fields(bench)


def test_a_job_that_is_refused_for_too_long_is_missed(bench: Bench) -> None:
    bench("CRON", "SET", "s", "@every 1d", "q", "body")
    bench("PAUSE", "q", "in")
    bench.now = (bench.now // 86_400_000 + 1) * 86_400_000 - 1_000
    advance(bench, GRACE // 1000 + 10)
    bench("PAUSE", "q", "none")
    advance(bench, 60)
    assert bench.number_queued() == 0
    assert bench.info("stats")["total_ticks_missed"] == "1"


def test_a_paused_schedule_does_not_tick_and_makes_nothing_up(mesh: Mesh) -> None:
    put(mesh, "@every 10s", "CATCHUP", "q", "body")
    assert mesh[1]("CRON", "PAUSE", "s") == b"OK"
    mesh.advance(MINUTE)
    assert jobs(mesh) == 0
    assert fields(mesh[2])[b"paused"] == 1
    assert fields(mesh[2])[b"next"] is None
    assert mesh[2]("CRON", "RESUME", "s") == b"OK"
    mesh.advance(1)
    assert jobs(mesh) == 0
    mesh.advance(10)
    assert jobs(mesh) == 1


def test_a_schedule_that_is_deleted_ticks_no_more(mesh: Mesh) -> None:
    put(mesh, "@every 10s", "q", "body")
    assert mesh[1]("CRON", "DEL", "s") == 1
    assert mesh[1]("CRON", "DEL", "s") == 0
    mesh.advance(MINUTE)
    assert jobs(mesh) == 0
    assert [bench("CRON", "GET", "s") for bench in mesh.nodes] == [None] * 3


def test_a_change_holds_from_now_on(mesh: Mesh) -> None:
    put(mesh, "@every 10s", "q", "old")
    mesh.advance(15)
    put(mesh, "@every 20s", "q", "new", index=2)
    mesh.advance(MINUTE)
    bodies = [job.body for job in mesh[first(mesh)].node.store.jobs.values()]
    assert sorted(bodies) == [b"new", b"new", b"new", b"old"]  # type: ignore[type-var]


def test_changing_a_paused_schedule_does_not_resume_it(bench: Bench) -> None:
    bench("CRON", "SET", "s", "@every 10s", "q", "body")
    bench("CRON", "PAUSE", "s")
    bench("CRON", "SET", "s", "@every 20s", "q", "body")
    assert fields(bench)[b"paused"] == 1


def test_run_adds_a_job_at_once_and_changes_nothing_else(bench: Bench) -> None:
    bench("CRON", "SET", "s", "@every 10s", "q", "body", "RETRY", 9)
    before = fields(bench)
    id = bench("CRON", "RUN", "s")
    assert isinstance(id, bytes)
    assert bench.number(id, b"retry") == 9
    assert fields(bench) == before


def test_many_schedules_are_looked_at_in_parts(bench: Bench) -> None:
    for number in range(350):
        bench("CRON", "SET", f"s{number}", "@every 10s", "q", "body")
    bench.advance(1)
    bench.now = START + 10_000
    bench.node.tick(bench.now)
    bench.node.commit()
    assert bench.number_queued() == MOST
    while (due := bench.node.next_wake()) and due <= bench.now:
        bench.node.tick(bench.now)
        bench.node.commit()
    assert bench.number_queued() == 350


def test_all_jobs_may_be_forgotten_while_one_is_being_added(mesh: Mesh) -> None:
    put(mesh, "@every 10s", "q", "body", "REPLICATE", 3)
    mesh.advance(LINK_TIME / 1000)
    node = mesh[first(mesh)]
    node.now = (node.now // 10_000 + 1) * 10_000
    node.node.tick(node.now)
    assert node.node.ticks.adding
    node.node.flush()
    mesh.advance(40)
    assert jobs(mesh) >= 3


@pytest.mark.parametrize("seed", range(20))
def test_no_tick_is_added_twice_or_forgotten_while_packets_are_lost(seed: int) -> None:
    mesh = Mesh(3, seed=seed + 1)
    mesh.advance(1)
    put(mesh, "@every 10s", "q", "body", "REPLICATE", 2)
    count = 0

    def lose(source: int, target: int, packet: bytes) -> bool:
        nonlocal count
        count += 1
        return (count * 7 + seed) % 5 == 0

    mesh.lose = lose
    mesh.advance(59)
    mesh.lose = lambda source, target, packet: False
    mesh.advance(9)
    found = {
        (trailer.key, job.id)
        for bench in mesh.nodes
        for job in bench.node.store.jobs.values()
        if (trailer := bench.node.store.trailers.of(job)) is not None
    }
    assert len({key for key, _ in found}) == 6
    assert len(found) == 6


def test_the_event_log_says_which_schedule_added_a_job(bench: Bench) -> None:
    bench.node.notes.eventing = True
    bench("CRON", "SET", "s", "@every 10s", "q", "body")
    advance(bench, 10)
    assert "cron:s" in bench.node.notes.events
