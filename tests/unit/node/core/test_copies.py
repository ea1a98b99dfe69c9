"""What jobs become while holders are away gets its copies, and these holders hear of it later."""

from collections.abc import Callable
from io import BytesIO

import pytest

from disque_trio.aof.format import RecordReader
from disque_trio.node.core.copies.copies import AT_ONCE, MAX_GAP
from disque_trio.protocol import bus
from disque_trio.protocol.successor import successor_id
from disque_trio.protocol.trailer import DEAD, REDRIVEN
from tests.support.mesh import Mesh
from tests.support.policies import set_policy

RETRY = 60


@pytest.fixture
def mesh() -> Mesh:
    mesh = Mesh(4)
    set_policy(*mesh.nodes, attempts=1, dead=b"dead")
    for bench in mesh.nodes:
        bench.node.journaling = True
    return mesh


def die(mesh: Mesh, copies: int = 2) -> tuple[bytes, int]:
    """Have a job of the first node die. Return its id and the last other node that has it."""
    id = mesh.add(0, "REPLICATE", copies, "RETRY", RETRY)
    (*_, other) = mesh.holders(id)
    assert mesh[0].get() == id
    mesh[0]("NACK", id)
    return id, other


def lose(mesh: Mesh, *nodes: int) -> None:
    """Cut off ``nodes``, and let the others notice."""
    for index in nodes:
        mesh.isolate(index)
    notice(mesh)


def notice(mesh: Mesh) -> None:
    """Let the nodes notice which others can be reached."""
    for peers in mesh.peers:
        peers.reachable = sorted(id for id in peers.everyone() if id not in peers.away)


def restart(mesh: Mesh, index: int, file: bool) -> None:
    """Kill a node and start it again; without a ``file`` it has forgotten everything."""
    node = mesh[index].node
    written = b"".join(node.journal) if file else b""
    node.flush()
    node._dispatcher._replication._tombstones.ended.latest.clear()
    for record in RecordReader(BytesIO(written)):
        node.load_record(record, False)
    for id in mesh.peers[index].everyone():
        if id not in mesh.peers[index].away:
            mesh.join(index, mesh.ids.index(id))


def send_back(mesh: Mesh) -> None:
    """Have the first node send back its letters."""
    me = mesh[0].me
    mesh[0].send(me, "REDRIVE", "dead")
    mesh.advance(0.1)
    assert mesh[0].replies(me) != [0]


def die_then_lose(mesh: Mesh) -> tuple[bytes, int]:
    """Send a letter back while a holder is away. Return the id of the job, and that holder."""
    id, other = die(mesh)
    mesh.settle()
    lose(mesh, other)
    send_back(mesh)
    return successor_id(successor_id(id, DEAD), REDRIVEN), other


def lose_then_die(mesh: Mesh) -> tuple[bytes, int]:
    """Let a job die while a holder is away. Return the id of the letter, and that holder."""
    id = mesh.add(0, "REPLICATE", 2, "RETRY", RETRY)
    (_, other) = mesh.holders(id)
    lose(mesh, other)
    assert mesh[0].get() == id
    mesh[0]("NACK", id)
    mesh.advance(0.1)
    return successor_id(id, DEAD), other


Scene = Callable[[Mesh], tuple[bytes, int]]
SCENES = pytest.mark.parametrize("scene", [die_then_lose, lose_then_die])


@SCENES
def test_a_node_that_is_well_gets_the_copy_of_one_that_is_away(mesh: Mesh, scene: Scene) -> None:
    id, other = scene(mesh)
    assert len(mesh.holders(id)) == 2
    assert other not in mesh.holders(id)
    assert mesh[0].node.copies.by_id == {}  # it is confirmed
    assert sorted(mesh.states(id)) == ["", "", "active", "queued"]
    mesh[0]("ACKJOB", id)
    mesh.rejoin(other)
    mesh.advance(3 * RETRY)
    assert mesh.holders(id) == []


@SCENES
def test_a_job_has_its_copies_once_enough_nodes_are_back(mesh: Mesh, scene: Scene) -> None:
    lose(mesh, 2, 3)
    id, other = scene(mesh)
    assert mesh.holders(id) == [0]
    mesh.advance(3 * MAX_GAP / 1000)
    mesh.rejoin(3)
    lose(mesh, 2, other)
    mesh.advance(0.1)
    assert mesh.holders(id) == [0, 3]
    assert mesh.states(id) == ["queued", "", "", "active"]


@SCENES
def test_a_copy_that_got_lost_is_sent_again(mesh: Mesh, scene: Scene) -> None:
    lost: list[int] = []

    def lose_copies(source: int, target: int, packet: bytes) -> bool:
        if bus.packet_type(packet) == bus.REPLJOB and mesh[0].node.copies.by_id:
            lost.append(target)
            return True
        return False

    mesh.lose = lose_copies
    id, _ = scene(mesh)
    assert mesh.holders(id) == [0]
    assert lost
    mesh.lose = lambda source, target, packet: False
    mesh.advance(1.5)
    assert len(mesh.holders(id)) == 2


@SCENES
def test_a_holder_that_comes_back_without_memory_gets_its_copy(mesh: Mesh, scene: Scene) -> None:
    lose(mesh, 2, 3)
    id, other = scene(mesh)
    restart(mesh, other, file=False)
    mesh.rejoin(other)
    mesh.advance(0.1)
    assert mesh.holders(id) == sorted([0, other])


def test_a_holder_that_forgot_the_job_before_gets_a_copy_of_what_follows_it(mesh: Mesh) -> None:
    id = mesh.add(0, "REPLICATE", 2, "RETRY", RETRY)
    (_, other) = mesh.holders(id)
    mesh[other].node.flush()
    assert mesh[0].get() == id
    mesh[0]("NACK", id)
    mesh.settle()
    letter = successor_id(id, DEAD)
    assert mesh.holders(letter) == sorted([0, other])
    assert mesh[0].node.copies.by_id == {}


@SCENES
def test_a_node_that_restarts_meanwhile_goes_on(mesh: Mesh, scene: Scene) -> None:
    lose(mesh, 2, 3)
    id, _ = scene(mesh)
    restart(mesh, 0, file=True)
    mesh.advance(RETRY)
    assert mesh.holders(id) == [0]
    mesh.rejoin(3)
    lose(mesh, 1, 2)
    mesh.advance(0.1)
    assert mesh.holders(id) == [0, 3]


def test_a_job_that_ends_meanwhile_is_no_longer_copied(mesh: Mesh) -> None:
    lose(mesh, 2, 3)
    id, _ = die_then_lose(mesh)
    assert mesh[0].node.copies.by_id
    mesh[0]("ACKJOB", id)
    mesh.advance(2 * MAX_GAP / 1000)
    assert mesh[0].node.copies.by_id == {}
    assert mesh[0].node.memory.used == mesh[0].counted_memory()


def test_many_jobs_get_their_copies_in_slices(mesh: Mesh) -> None:
    lose(mesh, 2, 3)
    ids = [die(mesh)[0] for _ in range(2 * AT_ONCE)]
    mesh.settle()
    lose(mesh, 1)
    send_back(mesh)
    again = [successor_id(successor_id(id, DEAD), REDRIVEN) for id in ids]
    assert [mesh.holders(id) for id in again] == [[0]] * len(ids)
    assert mesh[0].node.memory.used == mesh[0].counted_memory()
    mesh.rejoin(2)
    lose(mesh, 1, 3)
    mesh.advance(0.1)
    assert [mesh.holders(id) for id in again] == [[0, 2]] * len(ids)
    assert mesh[0].node.memory.used == mesh[0].counted_memory()


def test_in_a_healthy_cluster_no_body_travels(mesh: Mesh) -> None:
    die(mesh)
    mesh.settle()
    mesh.told()
    send_back(mesh)
    assert mesh.told("repljob") == []


# ---- who comes back hears that the job before has ended ---------------------------------------


@pytest.mark.parametrize("redriven", [False, True])
@pytest.mark.parametrize("ended", [False, True])
def test_who_comes_back_with_a_job_hears_of_what_followed_it_though_who_knew_is_gone(
    redriven: bool, ended: bool
) -> None:
    mesh = Mesh(3)
    set_policy(*mesh.nodes, attempts=1, dead=b"dead")
    mesh[1].node.journaling = True
    id = mesh.add(0, "REPLICATE", 3, "RETRY", RETRY)
    lose(mesh, 2)
    assert mesh[0].get() == id
    mesh[0]("NACK", id)
    mesh.settle()
    last = successor_id(id, DEAD)
    if redriven:
        send_back(mesh)
        last = successor_id(last, REDRIVEN)
    lose(mesh, 0)
    restart(mesh, 1, file=True)  # it knows nothing of the job, but has what followed it
    assert mesh.holders(id) == [0, 2]
    if ended:
        mesh[1]("ACKJOB", last)
        mesh.settle()
    mesh.join(1, 2)
    notice(mesh)
    mesh.told()
    for _ in range(2 * RETRY):
        mesh.advance(1)
        assert mesh[2].number_queued("q") == 0 or redriven
        assert mesh.states(id)[2] in ("active", "acked")
    assert mesh.states(id)[2] == "acked"
    assert (2 in mesh.holders(last)) is not ended
    if not ended:  # who told it how the job ended does not hold that, nor need a confirmation
        assert (2, "gotack", 1) not in mesh.told("gotack")


def test_who_asks_about_a_job_that_nothing_followed_is_not_answered(mesh: Mesh) -> None:
    packet = mesh[0].node.packets.about_job(bus.WILLQUEUE, mesh[0].node.store.ids.make(60, 60))
    mesh[1].node.receive(mesh.ids[0], packet, mesh[1].now)
    mesh.settle()
    assert mesh.told() == []


@pytest.mark.parametrize("early", [0, 1, 2])
def test_who_asks_about_a_job_that_expires_elsewhere_lets_it_expire_too(early: int) -> None:
    mesh = Mesh(3)
    set_policy(*mesh.nodes, dead=b"dead")
    id = mesh.add(0, "REPLICATE", 3, "TTL", 5)
    mesh[early].now += 6_100
    mesh[early].node.tick(mesh[early].now)
    assert early not in mesh.holders(id)
    for index in mesh.holders(id):
        asks = mesh[index].node.packets.about_job(bus.WILLQUEUE, id)
        mesh[early].node.receive(mesh.ids[index], asks, mesh[early].now)
    mesh.settle()
    for bench in mesh.nodes:
        bench.now = mesh[early].now
        bench.node.tick(bench.now)
    mesh.settle()
    assert [bench.number_queued("dead") for bench in mesh.nodes].count(1) == 1


def test_a_node_that_may_still_give_the_job_up_confirms_no_copy(mesh: Mesh) -> None:
    mesh.lose = lambda source, target, packet: (target, bus.packet_type(packet)) == (0, bus.GOTJOB)
    mesh[0].send(mesh[0].me, "ADDJOB", "q", "body", 900, "REPLICATE", 2)
    mesh.settle()
    (job,) = mesh[0].node.store.jobs.values()
    (_, other) = mesh.holders(job.id)
    mesh[other].node.copies.want(job)
    mesh.told()
    mesh.settle()
    assert mesh.told("repljob", "gotjob") == [(other, "repljob", 0)]


def test_who_reaches_nobody_that_could_have_a_copy_has_nothing_to_tell(mesh: Mesh) -> None:
    id = mesh.add(0, "REPLICATE", 2, "RETRY", RETRY)
    assert mesh[0].get() == id
    mesh.advance(1)  # the holder has heard of that
    lose(mesh, 1, 2, 3)
    (job,) = mesh[0].node.store.jobs.values()
    mesh[0].node.copies.want(job)
    assert mesh[0].node.replicas.places.due == 0


def test_who_gets_a_copy_late_hears_that_a_client_has_the_job(mesh: Mesh) -> None:
    lose(mesh, 2, 3)
    id, other = die_then_lose(mesh)
    assert mesh[0].get() == id
    mesh.advance(1)  # until the other holders know of that
    mesh.rejoin(3)
    lose(mesh, 2, other)
    mesh.advance(1)
    assert mesh.holders(id) == [0, 3]
    mesh.isolate(0)
    mesh.peers[3].died(mesh.ids[0])
    mesh.advance(2)
    assert mesh.states(id)[3] == "active"
