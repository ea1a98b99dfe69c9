"""SHOW id CLIENT and MAXBODY: which client has a job that this node delivered, and its size."""

import pytest

from tests.support.mesh import Mesh
from tests.support.node_bench import JOB_FIELDS, Bench


def holder(bench: Bench, id: bytes) -> object:
    """Return the id of the client that has the job; None: no client is named."""
    return taking(bench, id)[0]


def taking(bench: Bench, id: bytes) -> tuple[object, object]:
    """Return the id of the client that has the job, and since how many ms; None if not told."""
    shown = bench("SHOW", id, "CLIENT")
    assert isinstance(shown, list)
    assert shown[::2] in (JOB_FIELDS, [*JOB_FIELDS, b"client", b"client-since"])
    fields = dict(zip(shown[::2], shown[1::2], strict=True))
    return fields.get(b"client"), fields.get(b"client-since")


def test_it_is_the_client_that_got_the_job_last(bench: Bench) -> None:
    one, two = bench.client(), bench.client()
    id = bench.add("q", "body", "RETRY", 10)
    assert holder(bench, id) is None
    bench.ask(one, "GETJOB", "FROM", "q")
    assert holder(bench, id) == one.id
    bench.ask(one, "NACK", id)
    assert holder(bench, id) is None
    bench.ask(two, "GETJOB", "FROM", "q")
    assert holder(bench, id) == two.id
    bench.disconnect(two)
    assert holder(bench, id) == two.id
    bench.advance(20)
    assert holder(bench, id) is None
    bench("ACKJOB", id)
    assert bench("SHOW", id, "CLIENT") is None


def test_its_time_counts_from_the_delivery_and_not_from_the_queueing(bench: Bench) -> None:
    one, two = bench.client(), bench.client()
    first = bench.add("q", "body", "RETRY", 300)
    second = bench.add("q", "body", "RETRY", 300)
    assert taking(bench, first) == (None, None)
    bench.advance(30)
    bench.ask(one, "GETJOB", "COUNT", 2, "FROM", "q")
    bench.advance(1)
    assert taking(bench, first) == taking(bench, second) == (one.id, 1000)
    bench.ask(one, "NACK", first)
    assert taking(bench, first) == (None, None)
    bench.ask(two, "GETJOB", "FROM", "q")
    assert taking(bench, first) == (two.id, 0)
    assert taking(bench, second) == (one.id, 1000)


def test_clients_that_get_jobs_at_the_same_moment_are_told_apart(bench: Bench) -> None:
    clients = bench.client(), bench.client()
    jobs = bench.add(), bench.add()
    for client in clients:
        bench.ask(client, "GETJOB", "FROM", "q")
    assert [taking(bench, id) for id in jobs] == [(client.id, 0) for client in clients]


def test_its_time_begins_anew_when_a_worker_needs_more(bench: Bench) -> None:
    first, second = bench.add(), bench.add()
    bench.ask(bench.me, "GETJOB", "COUNT", 2, "FROM", "q")
    bench.advance(5)
    bench("WORKING", first)
    bench.advance(2)
    assert taking(bench, first) == (bench.me.id, 2000)
    assert taking(bench, second) == (bench.me.id, 7000)


def test_its_time_begins_anew_when_the_worker_tells_another_node() -> None:
    mesh = Mesh(2)
    id = mesh.add(0, "REPLICATE", 2)
    assert mesh[0].get() == id
    mesh.advance(5)
    mesh[1]("WORKING", id)
    mesh.advance(2)
    assert taking(mesh[1], id) == (None, None)
    assert taking(mesh[0], id) == (mesh[0].me.id, pytest.approx(2000, abs=100))


def test_one_that_waited_or_consumes_is_named_as_well(bench: Bench) -> None:
    waits, consumes = bench.client(), bench.client()
    bench.send(waits, "GETJOB", "FROM", "q")
    first = bench.add("q")
    assert holder(bench, first) == waits.id
    bench.ask(consumes, "HELLO", 3)
    bench.ask(consumes, "CONSUME", "q", "CREDIT", 5)
    second = bench.add("q")
    bench.pushes(consumes)
    assert holder(bench, second) == consumes.id


def test_a_job_that_pauses_is_nobodys(bench: Bench) -> None:
    id = bench.add()
    bench.get()
    bench("NACK", id, "DELAY", 100)
    assert holder(bench, id) is None


def test_a_node_that_did_not_deliver_it_names_nobody() -> None:
    mesh = Mesh(2)
    id = mesh.add(0, "REPLICATE", 2)
    assert mesh[0].get() == id
    assert holder(mesh[0], id) == mesh[0].me.id
    assert holder(mesh[1], id) is None


def test_without_the_word_nothing_changes(bench: Bench) -> None:
    id = bench.add()
    bench.get()
    shown = bench("SHOW", id)
    assert isinstance(shown, list)
    assert shown[::2] == JOB_FIELDS
    for words in (
        ("SHOW", id, "x"), ("SHOW", id, "CLIENT", "CLIENT"), ("SHOW",), ("SHOW", id, "MAXBODY"),
        ("SHOW", id, "MAXBODY", 1, "MAXBODY", 1),
    ):  # fmt: skip
        assert bench.error(*words) == "ERR wrong number of arguments for 'show' command"


@pytest.mark.parametrize(
    ("limit", "body"), [(0, b""), (3, b"abc"), (6, b"abcdef"), (1 << 40, b"abcdef")]
)
def test_a_body_is_cut_and_its_size_told(bench: Bench, limit: int, body: bytes) -> None:
    id = bench.add("q", "abcdef")
    me = bench.client()
    bench.ask(me, "GETJOB", "FROM", "q")
    for words in (("MAXBODY", limit, "CLIENT"), ("client", "maxbody", limit)):
        shown = bench("SHOW", id, *words)
        assert isinstance(shown, list)
        assert shown[::2] == [*JOB_FIELDS, b"body-size", b"client", b"client-since"]
        assert shown[-7:] == [body, b"body-size", 6, b"client", me.id, b"client-since", 0]
    assert bench.error("SHOW", id, "MAXBODY", -1).startswith("ERR value is out of range")
    assert bench.error("SHOW", id, "MAXBODY", "x").startswith("ERR value is not an integer")


def test_jobs_that_clients_have_are_found(bench: Bench) -> None:
    taken, queued, once = bench.add(), bench.add(), bench.add("o", "b", "RETRY", 0)
    assert (bench.get(), bench.get("o")) == (taken, once)
    assert bench("JSCAN", "TAKEN", "QUEUE", "q") == [b"0", [taken]]
    assert bench("JSCAN", "TAKEN") == [b"0", [taken]]
    bench("NACK", taken)
    assert bench("JSCAN", "TAKEN") == [b"0", []]
    found = bench("JSCAN")
    assert isinstance(found, list)
    assert set(found[1]) == {taken, queued, once}


def test_a_copy_is_in_nobodys_hands() -> None:
    mesh = Mesh(2)
    id = mesh.add(0, "REPLICATE", 2)
    assert mesh[0].get() == id
    assert [node("JSCAN", "TAKEN") for node in mesh.nodes] == [[b"0", [id]], [b"0", []]]
