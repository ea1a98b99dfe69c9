"""Users who may not take from all queues cannot end others' jobs by id, wherever these are."""

import pytest

from disque_trio.respserver.slices import do_slice
from tests.support.mesh import Mesh
from tests.support.node_bench import Bench
from tests.support.restricted import client_of

ENDINGS = [
    ("ACKJOB", "{id}"),
    ("ACKJOB", "{id}", "RESULT", "done"),
    ("ACKJOB", "{id}", "{own}"),
    ("FASTACK", "{id}"),
    ("CANCEL", "{id}"),
    ("DELJOB", "BCAST", "FORCE", "{id}"),
]
NO_QUEUE = "NOPERM this user has no permissions to access one of the keys"


def words(request: tuple[str, ...], id: bytes, own: bytes) -> list[str]:
    return [word.format(id=id.decode(), own=own.decode()) for word in request]


@pytest.mark.parametrize("request_", ENDINGS, ids=" ".join)
def test_jobs_of_other_nodes_are_passed_over(request_: tuple[str, ...]) -> None:
    mesh = Mesh(2)
    id = mesh.add(0, "REPLICATE", 1)
    own = mesh.add(1, "REPLICATE", 1)  # of the same queue, so it may be ended
    client = client_of(mesh[1], "~q*")
    assert mesh[1].ask(client, *words(request_, id, own)) == int("{own}" in request_)
    mesh.advance(30)
    assert mesh[0].held(id)
    assert mesh.holders(id) == [0]


@pytest.mark.parametrize("request_", ENDINGS, ids=" ".join)
def test_who_may_take_from_all_queues_ends_them(request_: tuple[str, ...]) -> None:
    mesh = Mesh(2)
    id = mesh.add(0, "REPLICATE", 1)
    own = mesh.add(1, "REPLICATE", 1)
    client = client_of(mesh[1], "%R~*")
    mesh[1].ask(client, *words(request_, id, own))
    mesh.advance(30)
    assert mesh.holders(id) == []


def test_a_right_for_another_command_does_not_count() -> None:
    mesh = Mesh(2)
    id = mesh.add(0, "REPLICATE", 1)
    client = client_of(mesh[1], "-@all", "+ackjob", "~mail.*", "(+getjob %R~*)")
    assert mesh[1].ask(client, "ACKJOB", id) == 0
    mesh.advance(30)
    assert mesh[0].held(id)


@pytest.mark.parametrize("request_", ENDINGS, ids=" ".join)
def test_a_copy_says_whose_a_job_is(request_: tuple[str, ...]) -> None:
    mesh = Mesh(2)
    id = mesh.add(0)
    own = mesh.add(1)
    assert mesh.holders(id) == [0, 1]
    client = client_of(mesh[1], "~mail.*")
    assert mesh[1].error_of(client, *words(request_, id, own)).startswith(NO_QUEUE)
    mesh.advance(30)
    assert mesh.holders(id) == [0, 1]
    client = client_of(mesh[1], "%R~q")
    mesh[1].ask(client, *words(request_, id, own))
    mesh.advance(30)
    assert mesh.holders(id) == []


def test_what_is_only_known_to_have_ended_is_not_touched() -> None:
    mesh = Mesh(3)
    id = mesh.add(0, "REPLICATE", 1)
    mesh.isolate(0)
    assert mesh[1]("ACKJOB", id) == 0  # so it tells the others until they have confirmed
    client = client_of(mesh[1], "~mail.*")
    for command in ("DELJOB", "FASTACK", "CANCEL", "ACKJOB"):
        assert mesh[1].ask(client, command, id, id) == 0
    mesh.rejoin(0)
    mesh.advance(300)
    assert mesh.holders(id) == []


# ---- many ids -----------------------------------------------------------------------------------


def many(bench: Bench) -> list[bytes]:
    return [bench.add("mail.in") for _ in range(250)]


@pytest.mark.parametrize("command", ["ACKJOB", "FASTACK", "CANCEL", "DELJOB", "NACK", "DEQUEUE"])
def test_one_of_many_that_is_out_of_reach_refuses_all(bench: Bench, command: str) -> None:
    ids = many(bench)
    ids.insert(200, bench.add("admin"))
    client = client_of(bench, "~mail.*")
    assert bench.error_of(client, command, *ids).startswith(NO_QUEUE)
    assert all(bench.held(id) for id in ids)
    assert bench.number_queued("mail.in") == 250
    (entry,) = bench.node.users.log.entries
    assert (entry.reason, entry.object, entry.user) == ("key", b"admin", b"someone")


def test_many_in_a_group_are_looked_at_when_they_run(bench: Bench) -> None:
    ids = many(bench)
    ids.insert(200, bench.add("admin"))
    client = client_of(bench, "~mail.*")
    bench.ask(client, "MULTI")
    bench.ask(client, "ACKJOB", *ids)
    reply = bench.ask(client, "EXEC")
    assert isinstance(reply, list)
    assert str(reply[0]).startswith(NO_QUEUE)
    assert all(bench.held(id) for id in ids)


def test_what_is_moved_before_its_turn_is_out_of_reach(bench: Bench) -> None:
    ids = many(bench)
    client = client_of(bench, "~mail.*")
    bench.send(client, "ACKJOB", *ids)
    do_slice(bench.node, bench.now)  # looks at all
    do_slice(bench.node, bench.now)  # acknowledges some
    left = [id for id in ids if bench.held(id)]
    assert len(left) == 150
    assert bench("UPDATEJOB", left[0], "QUEUE", "admin") == b"OK"
    assert bench("UPDATEJOB", left[-1], "QUEUE", "admin") == b"OK"
    while bench.node.batches.waiting:
        do_slice(bench.node, bench.now)
    assert bench.replies(client) == [248]
    assert [id for id in ids if bench.held(id)] == [left[0], left[-1]]


def test_rights_that_are_lost_meanwhile_end_the_work(bench: Bench) -> None:
    ids = many(bench)
    client = client_of(bench, "~mail.*")
    bench.send(client, "ACKJOB", *ids)
    do_slice(bench.node, bench.now)
    do_slice(bench.node, bench.now)
    client.user.set([b"resetkeys"])
    while bench.node.batches.waiting:
        do_slice(bench.node, bench.now)
    assert bench.replies(client) == [100]
    assert bench.number_queued("mail.in") == 150


def test_a_malformed_id_is_still_reported(bench: Bench) -> None:
    client = client_of(bench, "~mail.*")
    id = bench.add("mail.in")
    for command in ("ACKJOB", "FASTACK", "CANCEL", "DELJOB", "NACK", "ENQUEUE", "PROMOTE"):
        assert bench.error_of(client, command, id, "no-id").startswith("BADID")
        assert bench.error_of(client, command, *([id] * 200), "no-id").startswith("BADID")
    assert bench.held(id)
