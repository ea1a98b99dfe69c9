"""A node whose disk is full takes no more jobs, and goes on with those that it has."""

import pytest

from disque_trio.cluster.membership import PRIORITY_BAD
from tests.support.mesh import Mesh
from tests.support.node_bench import Bench

FULL = "No space left on device"
REFUSAL = f"MISCONF Errors writing to the AOF file: {FULL}"


@pytest.fixture
def bench() -> Bench:
    bench = Bench()
    bench.node.journaling = True
    return bench


@pytest.mark.parametrize(
    "words", ["ADDJOB q x 0", "UPDATEJOB D-1 BODY x", "REDRIVE q", "QMOVE q other", "PING"]
)
def test_nothing_is_added(bench: Bench, words: str) -> None:
    bench.node.set_trouble(False, "", FULL)
    assert bench.error(*words.split()).startswith(REFUSAL)


def test_the_refusal_names_the_node_and_says_what_to_do(bench: Bench) -> None:
    name = str(bench("CLUSTER", "MYID"), "ascii")[:8]
    bench.node.set_trouble(False, "", FULL)
    assert bench.error("PING") == (
        f"{REFUSAL} (node {name}). Free its disk, or use another node: this one tries again every "
        "second"
    )


def test_jobs_that_are_there_are_worked_on(bench: Bench) -> None:
    done, refused, once, late = (
        bench.add("q", "x", "RETRY", 10),
        bench.add("q", "y", "RETRY", 10),
        bench.add("once", "z", "RETRY", 0),
        bench.add("later", "z", "DELAY", 5),
    )
    bench.node.journal.clear()
    bench.node.set_trouble(False, "", FULL)
    assert bench.get_all("q") == [done, refused]
    assert isinstance(bench("WORKING", done), int)
    assert bench("ACKJOB", done) == 1
    assert bench("NACK", refused) == 1
    assert bench.get("q") == refused
    assert bench.get("once") == once
    assert bench.node.journal  # their ends
    waiting = bench.block("later")
    bench.advance(6)
    assert bench.got(waiting) == late
    assert bench("DELJOB", late) == 1
    assert bench("PAUSE", "q", "in") == b"in"


def test_a_consumer_goes_on(bench: Bench) -> None:
    ids = [bench.add() for _ in range(3)]
    bench.node.set_trouble(False, "", FULL)
    client = bench.client()
    client.resp = 3
    assert bench.ask(client, "CONSUME", "q", "CREDIT", 1) == b"OK"
    for id in ids:
        (message,) = bench.pushes(client)[-1:]
        assert message[2] == id
        assert bench("ACKJOB", id) == 1
    assert bench.number_queued() == 0


def test_everything_goes_on_when_there_is_room(bench: Bench) -> None:
    bench.node.set_trouble(False, "", FULL)
    bench.node.set_trouble(False, "")
    assert bench.add()
    assert bench("PING") == b"PONG"


def test_the_others_neither_choose_it_nor_send_it_jobs_but_get_its_jobs() -> None:
    mesh = Mesh(3)
    ids = [mesh.add(0, "REPLICATE", 1) for _ in range(4)]
    mesh[0].node.set_trouble(False, "", FULL)
    assert not mesh[0].node.replication.wants_copy(b"D-1")
    assert not mesh[0].node.federation.may_ask()
    got = mesh[1].block("q")
    mesh.settle()
    assert mesh[1].got(got) in ids
    me = mesh[0]("HELLO")[2]  # type: ignore[index]
    assert me[3] == b"%d" % PRIORITY_BAD
