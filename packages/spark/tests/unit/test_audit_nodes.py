"""The audit of what nodes log when clients use extensions of C Disque."""

from pathlib import Path

import pytest

from disque_spark.audit.rules import Rules
from disque_trio.eventlog.lines import LineWriter
from disque_trio.eventlog.schema import STARTED, STOPPED, Event
from disque_trio.respserver.client import Client
from packages.spark.tests.support.audited_logs import Audited, audited
from tests.support.mesh import START, Mesh
from tests.support.policies import set_policy

LONG = 300  # s, longer than the limit of any finding
Found = set[tuple[str, str | None]]


@pytest.fixture
def mesh() -> Mesh:
    mesh = Mesh(3)
    for bench in mesh.nodes:
        bench.node.notes.eventing = True
    return mesh


def ask(mesh: Mesh, index: int, *words: str | int | bytes) -> object:
    """Return the reply to a command that waits for other nodes."""
    client = mesh[index].client()
    mesh[index].send(client, *words)
    mesh.advance(0.1)
    (reply,) = mesh[index].replies(client)
    return reply


def work(mesh: Mesh, queue: str = "q") -> list[bytes]:
    """Take all jobs of a queue, wherever they are, and acknowledge them."""
    done = []
    for bench in mesh.nodes:
        for id in bench.get_all(queue):
            assert bench("ACKJOB", id) == 1
            done.append(id)
    mesh.settle()
    return done


def pushed(mesh: Mesh, index: int, *words: str) -> Client:
    """Return a client to which a job was pushed."""
    client = mesh[index].client()
    client.resp = 3
    assert mesh[index].ask(client, "CONSUME", "q", "CREDIT", 1, *words) == b"OK"
    mesh.advance(2)
    assert len(mesh[index].pushes(client)) == 1
    return client


def without(events: list[Event], kind: str) -> list[Event]:
    """Return events without those of a kind, which are about one job each."""
    kept: list[Event] = []
    skipped = False
    for event in events:
        if isinstance(event, tuple):
            skipped = event[1] == kind
        if not skipped or isinstance(event, str):
            kept.append(event)
    return kept


def audit(mesh: Mesh, directory: Path, rules: Rules | None = None) -> Audited:
    """Return what the logs of the nodes say after a long time without events."""
    mesh.advance(LONG)
    for bench in mesh.nodes:
        id = bench.node.id.decode()
        events = [(START, STARTED), *bench.node.notes.events, (bench.now, STOPPED)]
        name = f"events-{id[:8]}-{START}-0.jsonl"
        (directory / name).write_bytes(LineWriter(id).lines(events))
    found = audited([directory], rules or Rules())
    assert found.seen.unknown == found.seen.strange == 0
    return found


def kinds(found: Audited) -> Found:
    return {(finding.kind, finding.reason) for finding in found.findings}


# ---- jobs that are moved, taken early or discarded ----------------------------------------------


def test_jobs_that_were_moved_are_done_once(mesh: Mesh, tmp_path: Path) -> None:
    ids = [mesh.add(index, "REPLICATE", 2, "RETRY", 60) for index in (0, 1, 2)]
    assert ask(mesh, 1, "QMOVE", "q", "to") == 3
    assert sorted(work(mesh, "to")) == sorted(ids)
    found = audit(mesh, tmp_path)
    assert kinds(found) == set()
    jobs = found.jobs.values()
    assert [(job["deliveries"], job["ended"], job["complete"]) for job in jobs] == [
        (1, "acked", True)
    ] * 3


def test_a_moved_job_that_comes_again_says_why(mesh: Mesh, tmp_path: Path) -> None:
    mesh.add(0, "REPLICATE", 2, "RETRY", 20)
    assert ask(mesh, 2, "QMOVE", "q", "to") == 1
    assert len(mesh[0].get_all("to")) == 1
    mesh.advance(21)
    assert len(work(mesh, "to")) == 1
    assert kinds(audit(mesh, tmp_path)) == {("delivered-twice", "retry")}


@pytest.mark.parametrize(("old", "new"), [("aa-from", "zz-to"), ("zz-from", "aa-to")])
def test_a_moved_job_that_nobody_takes_waits_where_it_is(
    mesh: Mesh, tmp_path: Path, old: str, new: str
) -> None:
    id = ask(mesh, 0, "ADDJOB", old, "body", 1000, "REPLICATE", 2, "RETRY", 60)
    assert isinstance(id, bytes)
    assert ask(mesh, 1, "QMOVE", old, new) == 1
    found = audit(mesh, tmp_path, Rules(waiting=100))
    assert {(one.job, one.queue) for one in found.waits} == {(id.decode(), new)}
    assert found.findings == found.waits
    assert found.jobs[id.decode()]["queue"] == new


def test_letters_that_are_sent_back_and_done_are_no_finding(mesh: Mesh, tmp_path: Path) -> None:
    set_policy(*mesh.nodes, attempts=1, dead=b"dead")
    for index in (0, 1, 2):
        mesh.add(index, "REPLICATE", 2, "RETRY", 60)
    for bench in mesh.nodes:
        for id in bench.get_all():
            bench("NACK", id)
    mesh.settle()
    assert ask(mesh, 1, "REDRIVE", "dead") == 3
    assert len(work(mesh)) == 3
    assert kinds(audit(mesh, tmp_path)) == {("dead", "attempts")}


def test_a_job_that_is_deleted_at_one_node_waits_at_another(mesh: Mesh, tmp_path: Path) -> None:
    kept, gone = [mesh.add(0, "REPLICATE", 3, "RETRY", 3600) for _ in range(2)]
    assert mesh[2]("DELJOB", kept, gone) == 2
    assert mesh[0]("DELJOB", gone) == mesh[1]("DELJOB", gone) == 1
    found = audit(mesh, tmp_path)
    assert kinds(found) == set()
    assert [one.job for one in found.waits] == [kept.decode()]
    ended = {id: job["ended"] for id, job in found.jobs.items()}
    assert ended == {kept.decode(): None, gone.decode(): "deleted"}


def test_a_delay_that_is_taken_back_is_not_waited_for(mesh: Mesh, tmp_path: Path) -> None:
    id = mesh.add(0, "REPLICATE", 2, "DELAY", 80_000, "RETRY", 60)
    assert ask(mesh, 0, "UPDATEJOB", id, "DELAY", 0) == b"OK"
    for bench in mesh.nodes:  # its node loses it, and writes no line
        bench.node.notes.events = without(bench.node.notes.events, "queued")
    assert audit(mesh, tmp_path).found("never-delivered") == {id.decode(): {None}}


def test_a_delayed_job_may_be_moved_or_promoted(mesh: Mesh, tmp_path: Path) -> None:
    moved, promoted = [mesh.add(0, "REPLICATE", 2, "DELAY", 30, "RETRY", 60) for _ in range(2)]
    assert ask(mesh, 0, "UPDATEJOB", moved, "QUEUE", "to") == b"OK"
    assert mesh[0]("PROMOTE", promoted) == 1
    assert work(mesh) == [promoted]
    mesh.advance(31)
    assert work(mesh, "to") == [moved]
    assert kinds(audit(mesh, tmp_path)) == set()


@pytest.mark.parametrize(
    ("words", "reason"), [(("PROMOTE",), "enqueue"), (("UPDATEJOB", "DELAY", 0), "nack")]
)
def test_a_pause_that_is_cut_short_is_no_partition(
    mesh: Mesh, tmp_path: Path, words: tuple[str | int, ...], reason: str
) -> None:
    id = mesh.add(0, "REPLICATE", 2, "RETRY", 60)
    assert mesh[0].get_all() == [id]
    assert mesh[0]("NACK", id, "DELAY", 30) == 1
    mesh.advance(1)
    ask(mesh, 0, words[0], id, *words[1:])
    assert work(mesh) == [id]
    assert kinds(audit(mesh, tmp_path)) == {("delivered-twice", reason)}


def test_purged_jobs_are_cancelled(mesh: Mesh, tmp_path: Path) -> None:
    for index in (0, 1, 2):
        mesh.add(index, "REPLICATE", 2, "RETRY", 60)
    assert ask(mesh, 1, "QPURGE", "q") == 3
    found = audit(mesh, tmp_path)
    assert kinds(found) == set()
    assert [job["ended"] for job in found.jobs.values()] == ["cancelled"] * 3


# ---- jobs that are added in other ways ----------------------------------------------------------


def test_each_queue_of_a_topic_has_a_job_of_its_own(mesh: Mesh, tmp_path: Path) -> None:
    for queue in ("a", "b"):
        assert mesh[0]("BIND", "news.*", queue) == b"OK"
    options = ("REPLICATE", 2, "RETRY", 60, "PRIORITY", 3, "GROUP", "blue")
    ids = ask(mesh, 0, "ADDJOB", "@news.new", "body", 1000, *options)
    assert isinstance(ids, list)
    assert work(mesh, "a") == ids[:1]
    found = audit(mesh, tmp_path)
    assert {one.job for one in found.waits} == {ids[1].decode()}
    assert {(job["queue"], job["priority"], job["group"]) for job in found.jobs.values()} == {
        ("a", 3, "blue"),
        ("b", 3, "blue"),
    }


def test_the_jobs_of_a_schedule_are_jobs_like_others(mesh: Mesh, tmp_path: Path) -> None:
    assert ask(mesh, 0, "CRON", "SET", "s", "@every 10s", "q", "body", "REPLICATE", 2) == b"OK"
    mesh.advance(35)
    done = work(mesh)
    assert len(done) == 3
    assert mesh[0]("CRON", "DEL", "s") == 1
    mesh.settle()
    found = audit(mesh, tmp_path)
    assert kinds(found) == set()
    assert found.jobs.keys() == {id.decode() for id in done}


# ---- jobs that are pushed -----------------------------------------------------------------------


@pytest.mark.parametrize("at", [0, 1])  # the node with the job, or another one
@pytest.mark.parametrize(("loss", "reason"), [("requeue", "disconnect"), ("retry", "retry")])
def test_a_connection_that_broke_is_why_a_job_came_again(
    mesh: Mesh, tmp_path: Path, at: int, loss: str, reason: str
) -> None:
    id = mesh.add(0, "REPLICATE", 1, "RETRY", 20)
    mesh[at].disconnect(pushed(mesh, at, "ONLOSS", loss))
    mesh.advance(0.1 if loss == "requeue" else 21)
    assert work(mesh) == [id]
    found = audit(mesh, tmp_path)
    assert kinds(found) == {("delivered-twice", reason)}
    (job,) = found.jobs.values()
    assert job[f"requeues_{reason}"] == 1


def test_a_job_that_comes_once_is_lost_with_the_connection(mesh: Mesh, tmp_path: Path) -> None:
    id = mesh.add(0, "REPLICATE", 1, "RETRY", 0)
    mesh[0].disconnect(pushed(mesh, 0))
    mesh.advance(0.1)
    assert audit(mesh, tmp_path).found("lost-with-worker") == {id.decode(): {None}}


def test_a_job_whose_last_delivery_was_lost_with_the_connection_is_dead(
    mesh: Mesh, tmp_path: Path
) -> None:
    set_policy(*mesh.nodes, attempts=1, dead=b"dead")
    mesh.add(0, "REPLICATE", 2, "RETRY", 20)
    mesh[0].disconnect(pushed(mesh, 0))
    mesh.advance(0.1)
    assert len(work(mesh, "dead")) == 1
    assert kinds(audit(mesh, tmp_path)) == {("dead", "attempts")}
