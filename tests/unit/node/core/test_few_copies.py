"""Jobs that have lost copies with a node are found, and get new ones."""

import pytest

from disque_trio.node.core.copies.few_copies import AFTER_COPIES, AFTER_START, AGAIN, MOST_IDS
from disque_trio.protocol import bus
from tests.support.mesh import Mesh
from tests.support.paged_mesh import PagedMesh
from tests.support.policies import set_policy

RETRY = 60


@pytest.fixture
def mesh() -> Mesh:
    return Mesh(4)


def add(mesh: Mesh, copies: int, *options: str | int, at: int = 0) -> bytes:
    return mesh.add(at, "REPLICATE", copies, "RETRY", RETRY, *options)


def few(mesh: Mesh, index: int, *conditions: str | int) -> list[bytes]:
    """The ids of the jobs with too few copies that a node lists."""
    return scanned(mesh, index, "FEWCOPIES", *conditions)


def scanned(mesh: Mesh, index: int, *words: str | int) -> list[bytes]:
    found: list[bytes] = []
    cursor: object = b"0"
    while True:
        cursor, page = mesh[index]("JSCAN", cursor, *words)  # type: ignore[arg-type,misc]
        found += [one if isinstance(one, bytes) else one.encode() for one in page]
        if cursor == b"0":
            return found


def listed(mesh: Mesh) -> list[bytes]:
    """The same of all nodes that have not been lost."""
    lost = set().union(*[peers.forgotten for peers in mesh.peers])
    return [
        id
        for index in range(len(mesh.ids))
        if mesh.ids[index] not in lost
        for id in few(mesh, index)
    ]


def copy(mesh: Mesh, index: int, *ids: bytes, wait: int = 5_000) -> int:
    """COPYJOB; its reply."""
    bench = mesh[index]
    bench.send(bench.me, "COPYJOB", wait, *ids)
    for _ in range(200):
        mesh.advance(wait / 1000 / 100)
        replies = bench.replies(bench.me)
        if replies:
            (number,) = replies
            assert isinstance(number, int)
            return number
    raise AssertionError("no reply")


def counted(mesh: Mesh, seconds: float = 1) -> list[int]:
    """How many jobs with too few copies the nodes count after some time."""
    for bench in mesh.nodes:
        bench.node.cron(bench.now)
    mesh.advance(seconds)
    return [bench.node.few_copies.count for bench in mesh.nodes]


def lose_holder(mesh: Mesh, id: bytes) -> int:
    """Lose the last other node that holds a job of the first one."""
    *_, lost = mesh.holders(id)
    assert lost
    mesh.forget(lost)
    return lost


@pytest.mark.parametrize("copies", [2, 3])
def test_a_job_that_has_lost_a_copy_gets_another_one(mesh: Mesh, copies: int) -> None:
    id = add(mesh, copies)
    assert few(mesh, 0) == []
    lost = lose_holder(mesh, id)
    assert listed(mesh) == [id]
    assert copy(mesh, 0, id) == 1
    assert listed(mesh) == []
    assert len([node for node in mesh.holders(id) if node != lost]) == copies


def test_a_node_that_only_does_not_answer_still_has_its_copies(mesh: Mesh) -> None:
    id = add(mesh, 2)
    mesh.isolate(mesh.holders(id)[-1])
    assert few(mesh, 0) == []
    assert copy(mesh, 0, id) == 1
    assert len(mesh.holders(id)) == 2


def test_one_of_the_holders_lists_a_job(mesh: Mesh) -> None:
    ids = [add(mesh, 3, at=number % 3) for number in range(30)]
    mesh.forget(3)
    short = [id for id in ids if 3 in mesh.holders(id)]
    assert short
    assert sorted(listed(mesh)) == sorted(short)


def test_jobs_are_counted_by_queue(mesh: Mesh) -> None:
    ids = [add(mesh, 2) for _ in range(5)]
    lost = lose_holder(mesh, ids[0])
    number = len([id for id in ids if lost in mesh.holders(id)])
    bench = mesh[0]
    assert bench("JSCAN", 0, "FEWCOPIES", "REPLY", "counts") == [b"0", [[b"q", number]]]
    assert bench("JSCAN", 0, "FEWCOPIES", "QUEUE", "other", "REPLY", "counts") == [b"0", []]


def test_a_job_delivered_at_most_once_has_no_copies(mesh: Mesh) -> None:
    bench = mesh[0]
    id = bench("ADDJOB", "q", "body", 0, "RETRY", 0, "REPLICATE", 1)
    assert isinstance(id, bytes)
    mesh.forget(3)
    assert few(mesh, 0) == []
    assert copy(mesh, 0, id) == 1
    assert mesh.holders(id) == [0]


def test_the_end_of_a_job_reaches_its_new_copy(mesh: Mesh) -> None:
    id = add(mesh, 3)
    lose_holder(mesh, id)
    assert copy(mesh, 0, id) == 1
    second = mesh.holders(id)[1]
    assert mesh[0].get() == id
    mesh[second]("ACKJOB", id)
    mesh.advance(3)
    assert [
        node for node in mesh.holders(id) if mesh.ids[node] not in mesh.peers[0].forgotten
    ] == []


def test_a_job_is_not_lost_with_the_next_node(mesh: Mesh) -> None:
    id = add(mesh, 2)
    first = lose_holder(mesh, id)
    assert copy(mesh, 0, id) == 1
    mesh.forget(0)
    mesh.advance(5)
    states = mesh.states(id)
    assert [states[i] for i in range(4) if i not in (0, first)].count("queued") == 1


@pytest.mark.parametrize("taken", [False, True])
def test_a_copy_made_by_a_mere_holder_is_not_queued_meanwhile(mesh: Mesh, taken: bool) -> None:
    id = add(mesh, 3, at=3)
    lost = [node for node in mesh.holders(id) if node != 3][-1]
    mesh.forget(lost)
    if taken:
        assert mesh[3].get() == id
        mesh.advance(1)
    maker = next(node for node in mesh.holders(id) if node not in (3, lost))
    assert copy(mesh, maker, id) == 1
    mesh.advance(RETRY * 0.8)
    states = mesh.states(id)
    assert states[3] == ("active" if taken else "queued")
    assert [states[node] for node in range(4) if node != 3].count("queued") == 0
    mesh.advance(RETRY * 5)
    states = mesh.states(id)
    assert [states[node] for node in range(4) if node != lost].count("queued") == 1


def test_a_delayed_job_is_due_on_its_new_holder_when_it_should_be(mesh: Mesh) -> None:
    id = add(mesh, 2, "DELAY", 600)
    first = lose_holder(mesh, id)
    mesh.advance(500)
    assert copy(mesh, 0, id) == 1
    mesh.isolate(0)  # nobody knows whether it is dead
    mesh.advance(100 + RETRY + 5)
    states = mesh.states(id)
    assert [states[i] for i in range(4) if i not in (0, first)].count("queued") == 1


def test_dead_letters_get_copies(mesh: Mesh) -> None:
    set_policy(*mesh.nodes, attempts=1, dead=b"dead")
    id = add(mesh, 2)
    assert mesh[0].get() == id
    mesh[0]("NACK", id)
    mesh.advance(1)
    (letter,) = scanned(mesh, 0, "QUEUE", "dead")
    lost = next(node for node in mesh.holders(letter) if node)
    mesh.forget(lost)
    assert few(mesh, 0, "QUEUE", "dead") == [letter]
    assert copy(mesh, 0, letter) == 1
    assert len(mesh.holders(letter)) == 3  # with the one that is lost


def test_a_job_on_too_few_nodes_gets_what_there_can_be(mesh: Mesh) -> None:
    id = add(mesh, 4)
    mesh.forget(3)
    assert listed(mesh) == [id]
    assert copy(mesh, 0, id) == 0
    assert listed(mesh) == [id]
    assert not mesh[0].node.copies.by_id  # nothing is left to do


def test_some_copies_are_better_than_none() -> None:
    mesh = Mesh(5)
    id = add(mesh, 4)
    (free,) = [node for node in range(5) if node not in mesh.holders(id)]
    lost = mesh.holders(id)[2:]
    for node in lost:
        mesh.forget(node)
    assert copy(mesh, 0, id) == 0
    assert free in mesh.holders(id)
    assert listed(mesh) == [id]


def test_what_cannot_be_confirmed_ends_with_the_time(mesh: Mesh) -> None:
    id = add(mesh, 2)
    lose_holder(mesh, id)
    mesh.lose = lambda source, target, packet: bus.packet_type(packet) == bus.REPLJOB
    assert copy(mesh, 0, id, wait=1_000) == 0
    mesh.lose = lambda source, target, packet: False
    assert copy(mesh, 0, id) == 1
    mesh.advance(120)
    assert not mesh[0].node.copies.by_id


def test_a_node_that_comes_back_is_one_of_the_holders_again(mesh: Mesh) -> None:
    id = add(mesh, 2)
    lost = lose_holder(mesh, id)
    assert copy(mesh, 0, id) == 1
    mesh.take_back(lost)
    mesh.advance(RETRY * 3)
    assert mesh.states(id).count("queued") == 1
    owner = mesh.states(id).index("queued")
    assert mesh[owner].get() == id
    mesh[owner]("ACKJOB", id)
    mesh.advance(5)
    assert mesh.holders(id) == []


def test_a_job_that_ended_while_a_holder_was_thought_lost_ends_there_too(mesh: Mesh) -> None:
    id = add(mesh, 2)
    lost = lose_holder(mesh, id)
    assert copy(mesh, 0, id) == 1
    assert mesh[0].get() == id
    mesh[0]("ACKJOB", id)
    mesh.advance(1)
    assert mesh.holders(id) == [lost]
    mesh.take_back(lost)
    mesh.advance(RETRY * 2)
    assert "queued" not in mesh.states(id)[:lost]


def test_many_jobs_are_copied_a_few_at_a_time(mesh: Mesh) -> None:
    ids = [add(mesh, 2) for _ in range(400)]
    lost = lose_holder(mesh, ids[0])
    short = few(mesh, 0)
    assert len(short) > 100
    mesh[0].send(mesh[0].me, "COPYJOB", 0, *short)
    assert len(mesh[0].node.copies.by_id) == 0
    mesh[0].node.tick(mesh[0].now)
    assert 0 < len(mesh[0].node.copies.by_id) < 100
    mesh.settle()
    mesh.advance(1)
    assert mesh[0].replies(mesh[0].me) == [len(short)]
    assert all(len([one for one in mesh.holders(id) if one != lost]) == 2 for id in short)


def test_no_copy_is_sent_while_nodes_have_yet_to_read_earlier_ones(mesh: Mesh) -> None:
    id = add(mesh, 2)
    lose_holder(mesh, id)
    mesh.peers[0].slow = set(mesh.peers[0].reachable)
    mesh[0].send(mesh[0].me, "COPYJOB", 0, id)
    mesh.advance(1)
    assert mesh[0].replies(mesh[0].me) == []
    mesh.peers[0].slow = set()
    mesh.advance(1)
    assert mesh[0].replies(mesh[0].me) == [1]


def test_a_client_that_leaves_is_forgotten(mesh: Mesh) -> None:
    id = add(mesh, 2)
    lose_holder(mesh, id)
    mesh.lose = lambda source, target, packet: bus.packet_type(packet) == bus.REPLJOB
    bench = mesh[0]
    bench.send(bench.me, "COPYJOB", 0, id)
    mesh.advance(0.1)
    bench.node.forget_client(bench.me)
    mesh.lose = lambda source, target, packet: False
    mesh.advance(60)
    assert bench.node.few_copies.due == 0 or not bench.node.copies.by_id
    assert len(mesh.holders(id)) == 3


def test_the_same_id_twice_counts_once(mesh: Mesh) -> None:
    id = add(mesh, 2)
    lose_holder(mesh, id)
    assert copy(mesh, 0, id, id) == 1


def test_what_is_wrong_is_refused(mesh: Mesh) -> None:
    bench = mesh[0]
    id = add(mesh, 2)
    assert str(bench("COPYJOB", 0, "nonsense")).startswith("BADID")
    assert "timeout" in str(bench("COPYJOB", -1, id))
    assert "at most" in str(bench("COPYJOB", 0, *[id] * (MOST_IDS + 1)))


def test_jobs_are_counted_when_a_node_has_left(mesh: Mesh) -> None:
    ids = [add(mesh, 2) for _ in range(5)]
    assert counted(mesh) == [0, 0, 0, 0]
    lost = lose_holder(mesh, ids[0])
    short = len(few(mesh, 0))
    assert short
    assert counted(mesh)[0] == short
    assert copy(mesh, 0, *few(mesh, 0)) == short
    assert counted(mesh, AFTER_COPIES / 1000 + 1)[0] == 0
    assert mesh[0].node.few_copies.due == 0  # nothing is counted any more
    assert lost


def test_they_are_counted_again_as_long_as_there_are_any(mesh: Mesh) -> None:
    id = add(mesh, 2)
    assert counted(mesh)[0] == 0
    lose_holder(mesh, id)
    assert counted(mesh)[0] == 1
    mesh[0]("ACKJOB", id)
    assert counted(mesh, AGAIN / 1000 + 1)[0] == 0


def test_they_are_counted_after_a_start(mesh: Mesh) -> None:
    id = add(mesh, 2)
    lose_holder(mesh, id)
    node = mesh[0].node
    node.set_trouble(True, "")
    node.set_trouble(False, "")
    mesh.advance(AFTER_START / 1000 + 1)
    assert node.few_copies.count == 1


def test_all_jobs_of_a_leaving_node_get_copies_elsewhere(mesh: Mesh) -> None:
    alone = add(mesh, 1)
    shared = add(mesh, 2)
    elsewhere = add(mesh, 2, at=3)
    mesh[0]("CLUSTER", "LEAVING", "yes")
    for peers in mesh.peers[1:]:
        peers.reachable = [id for id in peers.reachable if id != mesh.ids[0]]
    ids = {alone, shared} | ({elsewhere} if 0 in mesh.holders(elsewhere) else set())
    assert set(listed(mesh)) == ids
    for index in range(4):
        mine = few(mesh, index)
        assert not mine or copy(mesh, index, *mine) == len(mine)
    assert listed(mesh) == []
    mesh.forget(0)
    mesh.advance(5)
    for id in ids:
        assert mesh.states(id)[1:].count("queued") == 1


def test_at_most_once_jobs_of_a_leaving_node_have_to_be_taken(mesh: Mesh) -> None:
    id = mesh[0]("ADDJOB", "q", "body", 0, "RETRY", 0, "REPLICATE", 1)
    assert isinstance(id, bytes)
    mesh[0]("CLUSTER", "LEAVING", "yes")
    assert few(mesh, 0) == [id]
    assert copy(mesh, 0, id) == 0
    assert mesh.holders(id) == [0]
    assert mesh[0].get() == id
    assert few(mesh, 0) == []


def test_jobs_on_disk_are_counted_listed_and_copied() -> None:
    mesh = PagedMesh(3)
    ids = [mesh.add(0, "REPLICATE", 2, "RETRY", RETRY) for _ in range(60)]
    (lost,) = [node for node in (1, 2) if mesh.holders(ids[0]) == [0, node]]
    mesh.send_to_disk(0)
    assert mesh[0].node.paging.pages.jobs > 20
    counted(mesh)
    mesh.forget(lost)
    mesh.settle()
    short = few(mesh, 0)
    assert sorted(short) == sorted(ids)
    assert counted(mesh)[0] == len(short)
    mesh.stop_paging(0)
    assert copy(mesh, 0, *short) == len(short)
    assert few(mesh, 0) == []
    assert counted(mesh, AFTER_COPIES / 1000 + 1)[0] == 0
    other = mesh[3 - lost].node
    assert other.store.jobs.count + other.paging.pages.jobs == len(ids)


def test_a_key_is_certain_on_the_new_holder(mesh: Mesh) -> None:
    bench = mesh[0]
    bench.send(bench.me, "ADDJOB", "q", "b", 1_000, "REPLICATE", 2, "RETRY", RETRY, "UNIQUE", "k")
    mesh.advance(1)
    assert len(bench.replies(bench.me)) == 1
    (id,) = scanned(mesh, 0)
    lose_holder(mesh, id)
    before = mesh.holders(id)
    assert copy(mesh, 0, id) == 1
    (new,) = [node for node in mesh.holders(id) if node not in before]
    job = mesh[new].node.store.jobs.get(id)
    assert job is not None
    entry = mesh[new].node.store.uniques.of(job)
    own = mesh[0].node.store.uniques.find(b"q", b"k")
    assert entry is not None
    assert own is not None
    assert entry.state == own.state
