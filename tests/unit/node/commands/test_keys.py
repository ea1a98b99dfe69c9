"""QKEYS and QDELKEY: keys of ADDJOB UNIQUE are listed, counted and freed."""

from typing import Any

import pytest

from disque_trio.node.core.unique.key_drops import MOST, PATIENCE
from tests.support.mesh import Mesh
from tests.support.node_bench import START, Bench
from tests.unit.node.core.test_uniques import started_again

FOR_HOUR = ("FOR", 3600)
ENDS = START + 3_600_000


def listed(bench: Bench, queue: str = "q", *words: str | int) -> list[Any]:
    """The keys of a queue, from one step."""
    reply: Any = bench("QKEYS", queue, *words)
    return reply[2]  # type: ignore[no-any-return]


def ended(bench: Bench, key: str, queue: str = "q", *options: str | int) -> bytes:
    """Add a job with a key that stays, and end it."""
    id = bench.add(queue, "body", "UNIQUE", key, *(options or FOR_HOUR))
    bench("ACKJOB", id)
    return id


def test_a_key_has_its_job_its_end_and_whether_it_stays(bench: Bench) -> None:
    stays = ended(bench, "stays")
    goes = bench.add("q", "body", "UNIQUE", "goes", "TTL", 60)
    assert sorted(listed(bench)) == [
        [b"goes", goes, START + 61_000, 0],
        [b"stays", stays, ENDS, 1],
    ]
    assert listed(bench, "other") == []
    bench("ACKJOB", goes)
    assert [entry[0] for entry in listed(bench)] == [b"stays"]
    bench.now += 3_600_000
    assert listed(bench) == []


def test_queues_are_listed_by_the_number_of_their_keys(bench: Bench) -> None:
    assert bench("QKEYS") == []
    for queue, count in (("few", 1), ("many", 3), ("some", 2)):
        for number in range(count):
            ended(bench, f"k{number}", queue)
    assert bench("QKEYS") == [[b"many", 3], [b"some", 2], [b"few", 1]]
    assert bench("QKEYS", "some", 1 << 33) == [b"0", 2, []]
    bench("QDELKEY", "few", "k0")
    assert bench("QKEYS") == [[b"many", 3], [b"some", 2]]
    bench("DEBUG", "FLUSHALL")
    assert bench("QKEYS") == []


def test_a_scan_finds_every_key_of_the_queue_once(bench: Bench) -> None:
    for number in range(2_500):
        bench.add("other", "", "UNIQUE", number, *FOR_HOUR)
    names = {ended(bench, f"k{number}") for number in range(300)}
    found: list[bytes] = []
    cursor: Any = 0
    steps = 0
    while True:
        reply: Any = bench("QKEYS", "q", cursor, "COUNT", 50)
        cursor, total, entries = reply
        assert total == 300
        found += [entry[1] for entry in entries]
        steps += 1
        if cursor == b"0":
            break
    assert len(found) == 300
    assert set(found) == names
    assert steps >= 3


@pytest.mark.parametrize(
    "words", [("q", "x"), ("q", 0, "COUNT"), ("q", "COUNT", 0), ("q", 0, "MATCH", "a"), ("q", 0, 0)]
)
def test_wrong_options_are_refused(bench: Bench, words: tuple[str | int, ...]) -> None:
    assert bench.error("QKEYS", *words).startswith("ERR")


def test_the_key_of_an_ended_job_is_freed(bench: Bench) -> None:
    first = ended(bench, "k")
    assert bench.add("q", "body", "UNIQUE", "k") == first
    assert bench("QDELKEY", "q", "k", "k", "unknown") == 1
    assert bench.add("q", "body", "UNIQUE", "k") != first


def test_the_key_of_a_living_job_stays(bench: Bench) -> None:
    id = bench.add("q", "body", "UNIQUE", "k", *FOR_HOUR)
    assert bench("QDELKEY", "q", "k") == 0
    assert bench.get() == id
    assert bench("QDELKEY", "q", "k") == 0
    assert bench.add("q", "body", "UNIQUE", "k", *FOR_HOUR) == id


def test_a_key_of_another_queue_stays(bench: Bench) -> None:
    ended(bench, "k", "other")
    assert bench("QDELKEY", "q", "k") == 0
    assert bench("QKEYS") == [[b"other", 1]]


def test_what_cannot_be_keys_is_refused(bench: Bench) -> None:
    assert bench.error("QDELKEY", "q").startswith("ERR wrong number")
    assert bench.error("QDELKEY", "q", "").startswith("ERR a key has")
    assert bench.error("QDELKEY", "q", *range(MOST + 1)).startswith("ERR more than")
    assert bench.error("QDELKEY", "q", *["x" * 60_000 + str(n) for n in range(5)]).startswith("ERR")


def test_a_freed_key_does_not_come_back_at_a_start() -> None:
    bench = Bench()
    bench.node.journaling = True
    ended(bench, "k")
    ended(bench, "stays")
    assert bench("QDELKEY", "q", "k") == 1
    assert [entry[0] for entry in listed(started_again(bench))] == [b"stays"]


def test_the_reply_says_so_if_it_cannot_be_written() -> None:
    bench = Bench()
    bench.node.journaling = True
    ended(bench, "k")
    bench.node.commit()
    bench.send(bench.me, "QDELKEY", "q", "k")
    bench.node.roll_back(b"-MISCONF no\r\n")
    (reply,) = bench.replies(bench.me)
    assert str(reply) == "MISCONF no"


# ---- in a cluster -----------------------------------------------------------------------------


@pytest.fixture
def mesh() -> Mesh:
    """Five nodes that know a key whose job has ended: three vote on it."""
    made = Mesh(5)
    id = made.add(0, "UNIQUE", "k", *FOR_HOUR)
    made[0]("ACKJOB", id)
    made.advance(5)
    assert made.holders(id) == []
    return made


def knowing(mesh: Mesh) -> list[int]:
    return [index for index, bench in enumerate(mesh.nodes) if listed(bench)]


def drop(mesh: Mesh, index: int = 0) -> object:
    """QDELKEY at a node, and the time that it takes."""
    bench = mesh[index]
    bench.send(bench.me, "QDELKEY", "q", "k")
    mesh.advance(PATIENCE / 1000 + 0.1)
    (reply,) = bench.replies(bench.me)
    return reply


@pytest.mark.parametrize("index", range(5))
def test_any_node_frees_it_on_all(mesh: Mesh, index: int) -> None:
    assert len(knowing(mesh)) >= 3
    assert drop(mesh, index) == 1
    assert knowing(mesh) == []
    assert drop(mesh, index) == 0


def test_nobody_frees_the_key_of_a_job_that_lives_elsewhere() -> None:
    mesh = Mesh(5)
    mesh.add(0, "REPLICATE", 1, "UNIQUE", "k", *FOR_HOUR)
    before = knowing(mesh)
    assert len(before) >= 3
    for index in range(5):
        assert drop(mesh, index) == 0
    assert knowing(mesh) == before


def test_it_stays_while_a_voter_is_away(mesh: Mesh) -> None:
    before = knowing(mesh)
    voters = mesh[0].node.store.uniques.voters(b"q", b"k")
    voter = next(i for i, id in enumerate(mesh.ids) if id in voters)
    asking = next(i for i in range(5) if i != voter)
    mesh.isolate(voter)
    assert str(drop(mesh, asking)).startswith("NOUNIQ")
    assert knowing(mesh) == before
    mesh.rejoin(voter)
    assert drop(mesh, asking) == 1
    assert knowing(mesh) == []


def test_the_client_hears_when_everything_is_forgotten(mesh: Mesh) -> None:
    bench = mesh[0]
    bench.send(bench.me, "QDELKEY", "q", "k")
    bench.node.flush()
    (reply,) = bench.replies(bench.me)
    assert "removed" in str(reply)
    mesh.advance(PATIENCE / 1000 + 1)
    assert bench.replies(bench.me) == []
