"""A node whose file cannot be written goes on with its jobs, except where that would break a
promise."""

import pytest

from disque_trio.cluster.membership import PRIORITY_BAD
from disque_trio.respserver.slices import do_slice
from tests.support.mesh import Mesh
from tests.support.node_bench import Bench

QUOTA = "Disk quota exceeded"
REFUSAL = f"MISCONF Errors writing to the AOF file: {QUOTA}"


def lag(bench: Bench) -> None:
    bench.node.set_trouble(False, "", QUOTA, True)


def go_on(bench: Bench) -> None:
    bench.node.set_trouble(False, "")
    bench.node.cron(bench.now)


@pytest.fixture
def bench() -> Bench:
    bench = Bench()
    bench.node.journaling = True
    return bench


@pytest.mark.parametrize(
    "words",
    [
        "ADDJOB q x 0",
        "UPDATEJOB D-1 BODY x",
        "REDRIVE q",
        "QMOVE q other",
        "PING",
        "PAUSE q in",
    ],
)
def test_nothing_is_added_and_no_queue_is_paused(bench: Bench, words: str) -> None:
    lag(bench)
    assert bench.error(*words.split()).startswith(REFUSAL)


def test_jobs_that_are_there_are_worked_on(bench: Bench) -> None:
    done, refused, late = (
        bench.add("q", "x", "RETRY", 10),
        bench.add("q", "y", "RETRY", 10),
        bench.add("later", "z", "DELAY", 5, "RETRY", 10),
    )
    bench.node.journal.clear()
    lag(bench)
    assert bench.get_all("q") == [done, refused]
    assert isinstance(bench("WORKING", done), int)
    assert bench("ACKJOB", done) == 1
    assert bench.node.journal  # kept by the driver
    assert bench("NACK", refused) == 1
    assert bench.get("q") == refused
    waiting = bench.block("later")
    bench.advance(6)
    assert bench.got(waiting) == late
    assert bench("DELJOB", late) == 1


@pytest.mark.parametrize("count", [1, 10])
def test_at_most_once_jobs_stay_and_the_others_are_delivered(bench: Bench, count: int) -> None:
    once = [bench.add("q", "x", "RETRY", 0) for _ in range(3)]
    often = bench.add("q", "y", "RETRY", 10)
    once.append(bench.add("q", "z", "RETRY", 0))
    lag(bench)
    assert bench.get_all("q", count=count) == [often]
    assert bench.get("q") is None
    assert bench("QLEN", "q") == 4
    assert bench.queue()[b"held-back-by"] == b"file"
    go_on(bench)
    assert b"held-back-by" not in bench.queue()
    assert bench.get_all("q") == once


def test_by_patterns_too(bench: Bench) -> None:
    once = bench.add("mail.a", "x", "RETRY", 0)
    often = bench.add("mail.a", "y", "RETRY", 10)
    lag(bench)
    take = ("GETJOB", "NOHANG", "PATTERN", "FROM", "mail.*")
    assert bench.ids(bench(*take)) == [often]
    assert bench(*take) is None
    go_on(bench)
    assert bench.ids(bench(*take)) == [once]


@pytest.mark.parametrize("kind", ["fair", "fifo"])
def test_a_group_waits_for_its_at_most_once_job(bench: Bench, kind: str) -> None:
    bench("QSET", "q", "GROUPS", kind)
    once = bench.add("q", "x", "RETRY", 0, "GROUP", "a")
    often = bench.add("q", "y", "RETRY", 10, "GROUP", "a")
    lag(bench)
    assert bench.get("q") is None
    go_on(bench)
    assert bench.get_all("q") == [once, often]


def test_groups_with_other_jobs_go_on(bench: Bench) -> None:
    bench("QSET", "q", "GROUPS", "fair")
    often = [bench.add("q", "y", "RETRY", 10, "GROUP", name) for name in "abab"]
    lag(bench)
    assert set(bench.get_all("q")) == set(often)


def test_a_client_that_waits_gets_it_once_the_file_is_written(bench: Bench) -> None:
    waiting = bench.block("q")
    late = bench.add("later", "x", "RETRY", 0, "DELAY", 5)
    bench("GETJOB", "NOHANG", "FROM", "later")
    other = bench.block("later")
    lag(bench)
    bench.advance(6)
    assert bench("QLEN", "later") == 1
    assert other.blocked
    go_on(bench)
    assert bench.got(other) == late
    assert waiting.blocked


def test_a_consumer_gets_it_then_too(bench: Bench) -> None:
    once, often = bench.add("q", "x", "RETRY", 0), bench.add("q", "y", "RETRY", 10)
    lag(bench)
    client = bench.client()
    client.resp = 3
    assert bench.ask(client, "CONSUME", "q", "CREDIT", 5) == b"OK"
    assert [message[2] for message in bench.pushes(client)] == [often]
    go_on(bench)
    assert [message[2] for message in bench.pushes(client)] == [once]


def test_what_is_refused_at_the_bound_is_everything(bench: Bench) -> None:
    id = bench.add("q", "x", "RETRY", 10)
    bench.node.set_trouble(False, QUOTA)
    assert bench.error("GETJOB", "NOHANG", "FROM", "q").startswith(REFUSAL)
    assert bench.error("ACKJOB", id).startswith(REFUSAL)


# ---- the turn in which a write fails first ------------------------------------------------------


def test_what_clients_said_about_jobs_stands(bench: Bench) -> None:
    id = bench.add("q", "x", "RETRY", 10)
    bench.send(bench.me, "ACKJOB", id)
    bench.node.roll_back(b"-MISCONF now\r\n")
    assert bench.replies(bench.me) == [1]


@pytest.mark.parametrize("words", ["ADDJOB q x 0", "GETJOB NOHANG FROM once"])
def test_what_needs_the_file_does_not(bench: Bench, words: str) -> None:
    bench.add("once", "x", "RETRY", 0)
    bench.send(bench.me, *words.split())
    bench.node.roll_back(b"-MISCONF now\r\n")
    assert bench.raw(bench.me) == b"-MISCONF now\r\n"


class DrivenMesh(Mesh):
    """Ends the turns of nodes as the driver does."""

    def _commit(self) -> None:
        for bench in self.nodes:
            if bench.node.lagging and bench.node.journal:
                bench.node.refuse_added()
            bench.node.journal.clear()
        super()._commit()


def test_an_addjob_that_waits_for_copies_meanwhile_is_refused() -> None:
    mesh = DrivenMesh(2)
    bench = mesh[0]
    bench.node.journaling = True
    bench.send(bench.me, "ADDJOB", "q", "x", 5000, "REPLICATE", 2)
    lag(bench)
    mesh.settle()
    (reply,) = bench.replies(bench.me)
    assert str(reply).startswith(REFUSAL)


def test_an_acknowledgement_of_many_jobs_is_not(bench: Bench) -> None:
    ids = [bench.add("q", "x", "RETRY", 10) for _ in range(2_000)]
    lag(bench)
    bench.node.journal.clear()
    bench.send(bench.me, "ACKJOB", *ids)
    while bench.me.in_slices:
        do_slice(bench.node, bench.now)
    assert bench.node.journal
    bench.node.refuse_added()
    bench.node.commit()
    assert bench.replies(bench.me) == [2_000]


def test_the_others_hear_of_an_acknowledgement_whose_record_failed() -> None:
    mesh = Mesh(2)
    id, other = mesh.add(0, "REPLICATE", 2), mesh.add(0, "REPLICATE", 2)
    bench = mesh[0]
    bench.send(bench.me, "ACKJOB", id)
    bench.node.roll_back(b"-MISCONF now\r\n")
    lag(bench)
    bench.send(bench.me, "ACKJOB", other)
    mesh.settle()
    assert bench.replies(bench.me) == [1, 1]
    assert mesh.states(id) == mesh.states(other) == ["acked", "acked"]


# ---- other nodes --------------------------------------------------------------------------------


def test_others_get_its_jobs_but_not_those_that_may_exist_only_once() -> None:
    mesh = Mesh(2)
    often = {mesh.add(0, "REPLICATE", 1, "RETRY", 10) for _ in range(4)}
    for _ in range(4):
        mesh.add(0, "REPLICATE", 1, "RETRY", 0)
    lag(mesh[0])
    found: set[bytes] = set()
    for _ in range(30):
        found.update(mesh[1].get_all("q"))
        mesh.advance(0.5)
    assert found == often
    assert mesh[0]("QLEN", "q") == 4
    waiting = mesh[1].block("q")
    go_on(mesh[0])
    mesh.advance(6)
    assert not waiting.blocked


@pytest.mark.parametrize("pattern", [False, True])
def test_it_gets_no_jobs_of_others_even_if_it_asked_before(pattern: bool) -> None:
    mesh = Mesh(2)
    how = ("PATTERN", "FROM", "q*") if pattern else ("FROM", "q")
    waiting = mesh[1].client()
    mesh[1].send(waiting, "GETJOB", *how)
    mesh.advance(1)
    lag(mesh[1])
    once = mesh.add(0, "REPLICATE", 1, "RETRY", 0)
    mesh.advance(1)
    assert mesh[1]("QLEN", "q") == 0  # nobody could have it there
    go_on(mesh[1])
    mesh.advance(1)
    assert mesh[1].ids(mesh[1].replies(waiting)[0]) == [once]


def test_it_confirms_an_acknowledgement_only_when_that_is_in_the_file() -> None:
    mesh = Mesh(3)
    id = mesh.add(0, "REPLICATE", 3)
    lag(mesh[2])
    mesh[0]("ACKJOB", id)
    mesh.advance(5)
    assert [mesh.states(id)[index] for index in (0, 2)] == ["acked", "acked"]
    go_on(mesh[2])
    mesh.advance(10)
    assert mesh.holders(id) == []


def test_it_keeps_what_it_was_told_to_forget_until_that_is_in_the_file() -> None:
    mesh = Mesh(2)
    id = mesh.add(0, "REPLICATE", 2)
    lag(mesh[0])
    assert mesh[0]("ACKJOB", id) == 1
    mesh.advance(20)
    assert set(mesh.holders(id)) == {0, 1}  # so the other one still knows that it ended
    go_on(mesh[0])
    mesh.advance(20)
    assert mesh.holders(id) == []


def test_the_others_do_not_choose_it() -> None:
    mesh = Mesh(2)
    lag(mesh[0])
    assert not mesh[0].node.replication.wants_copy(b"D-1")
    me = mesh[0]("HELLO")[2]  # type: ignore[index]
    assert me[3] == b"%d" % PRIORITY_BAD
