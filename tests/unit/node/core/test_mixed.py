"""Extensions in a cluster with a C node: refused, or carried along by it."""

import pytest

from disque_trio.protocol import bus
from disque_trio.protocol.serialjob import JobWriter, decode_job
from tests.support.mesh import Mesh

C_NODE = 2
HEADERS = ["HEADERS", 1, "n", "v"]


def mixed(setting: str = "auto") -> Mesh:
    """Two nodes, and one that stands in for a C node."""
    mesh = Mesh(3)
    mesh.c_nodes = {C_NODE}
    for peers in mesh.peers:
        peers.judge_extensions()
        if setting != "auto":
            peers.extended = setting == "yes"
            peers.plain = setting == "no"
    return mesh


def copy_for(mesh: Mesh, target: int) -> bytes:
    """Return the job in flight to ``target``."""
    mesh[0].node.commit()
    (job,) = [
        job
        for _, to, packet in mesh.moving
        if to == target and bus.packet_type(packet) == bus.REPLJOB
        for job in bus.read_jobs(packet).jobs
    ]
    return job


def test_options_that_need_extensions_are_refused_and_all_others_served() -> None:
    for setting in ("auto", "no"):
        mesh = mixed(setting)
        assert mesh[0].error("ADDJOB", "q", "b", 0, *HEADERS).startswith("NOEXT ")
        id = mesh.add(0, "REPLICATE", 3)
        assert mesh.holders(id) == [0, 1, 2]


def test_a_c_node_carries_a_trailer_behind_the_body_and_gives_it_back() -> None:
    mesh = mixed("yes")
    mesh[0].send(mesh[0].me, "ADDJOB", "q", "body", 0, "REPLICATE", 3, *HEADERS)
    carried = copy_for(mesh, C_NODE)
    (id,) = [job.id for job in mesh[0].node.store.jobs.values()]
    mesh.moving.clear()
    found = decode_job(carried)
    assert found.body.startswith(b"body")
    # C writes the same flags and body to its file, and passes them on to others.
    state, retry, repl = 2, found.retry, found.repl
    given = JobWriter().encode(
        id, state, found.flags, repl, found.etime, found.ctime, 0, retry, 0, 0, b"q", found.body,
        found.nodes,
    )  # fmt: skip
    packet = mesh[C_NODE].node.packets.jobs(bus.YOURJOBS, [given])
    mesh[1].node.receive(mesh.ids[C_NODE], packet, mesh[1].now)
    assert mesh[1]("GETJOB", "WITHHEADERS", "FROM", "q") == [
        [b"q", id, b"body", b"headers", [b"n", b"v"]]
    ]


def test_what_a_plain_job_sends_and_writes_is_the_same_with_each_setting() -> None:
    sent = []
    for setting in ("auto", "yes", "no"):
        mesh = mixed(setting)
        mesh[0].node.journaling = True
        mesh[0].send(mesh[0].me, "ADDJOB", "q", "body", 0, "REPLICATE", 3, "RETRY", 7)
        sent.append(copy_for(mesh, C_NODE))
        mesh.settle()
        sent.append(b"".join(mesh[0].node.journal))
    assert sent[:2] == sent[2:4] == sent[4:]


def test_what_a_client_gave_to_a_job_goes_with_it_also_once_a_c_node_joins() -> None:
    mesh = Mesh(3)
    id = mesh.add(0, "REPLICATE", 1, *HEADERS)
    mesh.c_nodes = {C_NODE}
    for peers in mesh.peers:
        peers.judge_extensions()
    mesh[1].send(mesh[1].me, "GETJOB", "WITHHEADERS", "FROM", "q")
    mesh.advance(1)
    assert mesh[1].replies(mesh[1].me) == [[[b"q", id, b"body", b"headers", [b"n", b"v"]]]]


# ---- jobs with trailers are not for C nodes, in auto ---------------------------------------------


def joined_by_c_node(*options: str | int) -> tuple[Mesh, bytes]:
    """Two nodes with a job that has headers, and a C node that joined them afterwards."""
    mesh = Mesh(3)
    id = mesh.add(0, "REPLICATE", 1, *options, *HEADERS)
    mesh.c_nodes = {C_NODE}
    for peers in mesh.peers:
        peers.judge_extensions()
    return mesh, id


def given(mesh: Mesh) -> list[bytes]:
    """The ids of the queued jobs of the C node."""
    return [job.id for job in mesh[C_NODE].node.store.jobs.values()]


def test_a_c_node_does_not_get_a_job_with_headers_but_those_behind_it() -> None:
    mesh, first = joined_by_c_node()
    mesh[C_NODE].send(mesh[C_NODE].me, "GETJOB", "FROM", "q")
    mesh.advance(2)
    assert given(mesh) == []
    plain = mesh.add(0, "REPLICATE", 1)  # it remembers who asked in vain
    mesh.settle()
    assert given(mesh) == [plain]
    assert mesh[C_NODE].replies(mesh[C_NODE].me) == [[[b"q", plain, b"body"]]]
    assert mesh[1]("GETJOB", "NOHANG", "FROM", "q") is None  # it asks
    mesh.advance(1)
    assert mesh[1].get("q") == first


def test_a_c_node_that_waits_in_vain_does_not_hold_up_others() -> None:
    mesh, first = joined_by_c_node()
    assert mesh[0].get("q") == first
    mesh[C_NODE].send(mesh[C_NODE].me, "GETJOB", "FROM", "q")
    mesh[1].send(mesh[1].me, "GETJOB", "FROM", "q")
    mesh.advance(0.5)
    mesh[0]("NACK", first)
    mesh.advance(0.1)
    assert mesh[1].replies(mesh[1].me) == [[[b"q", first, b"body"]]]
    assert given(mesh) == []
    plain = mesh.add(0, "REPLICATE", 1)
    mesh.advance(0.1)
    assert mesh[C_NODE].replies(mesh[C_NODE].me) == [[[b"q", plain, b"body"]]]


def test_with_yes_a_c_node_gets_all_jobs() -> None:
    mesh, first = joined_by_c_node()
    for peers in mesh.peers:
        peers.extended = True
    mesh[C_NODE].send(mesh[C_NODE].me, "GETJOB", "FROM", "q")
    mesh.advance(2)
    assert given(mesh) == [first]


@pytest.mark.parametrize("seed", range(4))
def test_a_job_that_waits_for_its_copies_when_a_c_node_joins_gets_them_elsewhere(
    seed: int,
) -> None:
    mesh = Mesh(4, seed)
    for index in (1, 2, 3):
        mesh.cut(0, index)
    mesh[0].send(mesh[0].me, "ADDJOB", "q", "body", 0, "REPLICATE", 3, *HEADERS)
    mesh.settle()
    mesh.c_nodes = {C_NODE}
    for peers in mesh.peers:
        peers.judge_extensions()
    (job,) = mesh[0].node.store.jobs.values()
    for index in (1, 2, 3):
        mesh.join(0, index)
    mesh.advance(5)
    assert mesh.holders(job.id) == [0, 1, 3]
    assert mesh[0].replies(mesh[0].me) == [job.id]
