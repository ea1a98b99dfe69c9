"""What the event log records about jobs."""

import json
import random

import pytest

from disque_trio.eventlog.lines import LineWriter
from disque_trio.eventlog.schema import FIELDS, NEW_JOB_FIELDS
from disque_trio.node.core.jobs.events import EventNotes
from disque_trio.node.core.jobs.job import Job, priority_flags
from disque_trio.node.core.jobs.marked import MarkedJobs
from disque_trio.node.core.jobs.trailers import Trailers
from disque_trio.protocol.trailer import Trailer
from disque_trio.respserver.host import Host
from disque_trio.respserver.machine import Machine
from tests.support.mesh import Mesh

Shown = tuple[str, str, str, int]


@pytest.fixture
def mesh() -> Mesh:
    mesh = Mesh(3)
    for bench in mesh.nodes:
        bench.node.notes.eventing = True
        bench.me.name = b"worker"
    return mesh


def noted(mesh: Mesh, index: int) -> list[Shown]:
    """Return event, reason, client and the number of the peer's node (-1: none), oldest first."""
    events, mesh[index].node.notes.events = mesh[index].node.notes.events, []
    found: list[Shown] = []
    client = ""
    what: tuple[int | str | bytes, ...] = ()
    for event in events:
        if isinstance(event, str):
            client = event
        elif isinstance(event, tuple):
            what = event
        else:
            peer = what[4]
            assert isinstance(peer, bytes)
            number = mesh.ids.index(peer) if peer else -1
            found.append((str(what[1]), str(what[3]), client, number))
    return found


def test_nothing_is_noted_unless_it_is_wanted(mesh: Mesh) -> None:
    for bench in mesh.nodes:
        bench.node.notes.eventing = False
    mesh[0]("ACKJOB", mesh.add(0))
    mesh[0]("QSET", "q", "ATTEMPTS", 1, "DEAD", "dead")
    for number in range(12):
        mesh.add(0, "REPLICATE", 1 + number % 2, "RETRY", 2)
    mesh.advance(1)
    client = mesh[1].client()
    mesh[1].send(client, "GETJOB", "TIMEOUT", 100, "COUNT", 2, "FROM", "q")  # from another node
    mesh.advance(1)
    assert mesh[1].replies(client)
    for command in ("WORKING", "NACK", "DEQUEUE", "ENQUEUE", "CANCEL", "DELJOB"):
        mesh[0](command, mesh[0].get())
        mesh.settle()
    last = mesh.add(0, "REPLICATE", 2, "DELAY", 1)
    for words in (["UPDATEJOB", last, "BODY", "new"], ["QMOVE", "q", "other"], ["REDRIVE", "dead"]):
        mesh[0].send(client := mesh[0].client(), *words)
        mesh.advance(2)
        assert len(mesh[0].replies(client)) == 1
    mesh.add(0, "TTL", 2)
    mesh.advance(10)
    assert [bench.node.notes.events for bench in mesh.nodes] == [[], [], []]


def test_the_life_of_a_job_with_copies(mesh: Mesh) -> None:
    id = mesh.add(0, "RETRY", 60)
    assert noted(mesh, 0) == [
        ("replicated", "", "worker", -1),
        ("added", "add", "worker", -1),
    ]
    assert noted(mesh, 1) == [("copied", "", "", 0)]
    mesh[0].get()
    mesh[0]("WORKING", id)
    mesh[0]("NACK", id)
    mesh[0].get()
    mesh[0]("ACKJOB", id)
    mesh[0]("ACKJOB", id)
    mesh.settle()
    events = noted(mesh, 0)
    assert events.pop()[:2] == ("deleted", "collected")
    assert events == [
        ("delivered", "", "worker", -1),
        ("working", "", "worker", -1),
        ("nacked", "", "worker", -1),
        ("queued", "nack", "worker", -1),
        ("delivered", "", "worker", -1),
        ("acked", "client", "worker", -1),
    ]
    assert noted(mesh, 1) == [("acked", "peer", "", 0), ("deleted", "collected", "", 0)]


def test_a_job_that_is_placed_on_another_node_is_noted_as_added(mesh: Mesh) -> None:
    mesh[0].node.set_leaving(True)
    mesh.add(0, "REPLICATE", 2)
    assert noted(mesh, 0) == [
        ("replicated", "", "worker", -1),
        ("added", "", "worker", -1),
    ]


def test_numbers_are_given_where_a_job_is_new(mesh: Mesh) -> None:
    mesh.add(0, "REPLICATE", 2, "RETRY", 60, "TTL", 100, "DELAY", 5)
    event = next(event for event in mesh[0].node.notes.events if event[1] == "added")
    assert event[5:13] == (0, 0, 4, 2, 2, 60, 100, 5)
    assert event[13] == next(iter(mesh[0].node.store.jobs.values())).ctime


def test_priority_and_group_are_noted_where_a_job_has_them(mesh: Mesh) -> None:
    for options in (
        ["PRIORITY", 7, "GROUP", "blue"],
        ["PRIORITY", 7, "GROUP", "red"],
        ["PRIORITY", 7],
        ["GROUP", b"\xff"],
        [],
    ):
        mesh.add(0, "REPLICATE", 2, *options)
    expected = [(7, "blue"), (7, "red"), (7, None), (None, "\\xff"), (None, None)]
    for index, kinds in ((0, ["replicated", "added"]), (1, ["copied"])):
        text = LineWriter("0" * 40).lines(mesh[index].node.notes.events)
        lines = [json.loads(line) for line in text.splitlines()]
        for kind in kinds:
            new = [line for line in lines if line["event"] == kind]
            assert [(line.get("priority"), line.get("group")) for line in new] == expected
        assert not [line for line in lines if line["event"] == "queued" and "group" in line]


def test_jobs_in_a_row_with_one_priority_and_group_are_noted_once(mesh: Mesh) -> None:
    options = ["REPLICATE", 1, "PRIORITY", 2, "GROUP", "blue"]
    ids = [mesh[0].add("q", "body", *options) for _ in range(3)]
    added, client, *others = mesh[0].node.notes.events
    assert (client, *others) == ("worker", *ids)
    assert added[-2:] == (2, b"blue")


def test_jobs_without_priority_and_group_are_noted_as_before(mesh: Mesh) -> None:
    mesh.add(0, "REPLICATE", 1)
    assert len(mesh[0].node.notes.events[0]) == len(FIELDS + NEW_JOB_FIELDS)
    mesh.add(0, "REPLICATE", 1, "HEADERS", 1, "kind", "test")
    new = [event for event in mesh[0].node.notes.events if isinstance(event, tuple)]
    assert [len(event) for event in new] == [len(FIELDS + NEW_JOB_FIELDS)] * 2


def test_a_job_that_moves_is_noted_on_both_sides(mesh: Mesh) -> None:
    mesh.add(0, "REPLICATE", 1)
    noted(mesh, 0)
    client = mesh[1].block("q")
    client.name = b"other"
    mesh.settle()
    assert noted(mesh, 0) == [("exported", "", "", 1)]
    assert noted(mesh, 1) == [
        ("imported", "", "", 0),
        ("queued", "import", "", 0),
        ("delivered", "", "other", -1),
    ]


def test_why_a_job_is_queued_and_how_it_ends(mesh: Mesh) -> None:
    id = mesh.add(0, "REPLICATE", 1, "DELAY", 1, "RETRY", 2, "TTL", 9)
    mesh.advance(1.1)
    mesh[0]("DEQUEUE", id)
    mesh[0]("ENQUEUE", id)
    mesh[0].get()
    mesh.advance(3)
    mesh.advance(10)
    gone = mesh.add(0, "REPLICATE", 1)
    mesh[0]("DELJOB", gone)
    fast = mesh.add(0, "REPLICATE", 1)
    mesh[0]("FASTACK", fast)
    events = [event[:2] for event in noted(mesh, 0)]
    assert events == [
        ("added", ""),
        ("queued", "delay"),
        ("dequeued", "command"),
        ("queued", "enqueue"),
        ("delivered", ""),
        ("queued", "retry"),
        ("expired", ""),
        ("added", "add"),
        ("deleted", "command"),
        ("added", "add"),
        ("deleted", "fastack"),
    ]


def test_a_client_without_a_name_is_called_by_its_address(mesh: Mesh) -> None:
    mesh[0].me.name = b""
    mesh.add(0, "REPLICATE", 1)
    assert noted(mesh, 0)[0][2] == "10.0.0.1:7000"


def test_a_job_that_was_given_up_is_noted(mesh: Mesh) -> None:
    mesh.lose = lambda source, target, packet: True
    mesh[0].send(mesh[0].me, "ADDJOB", "q", "b", 100)
    mesh.advance(1)
    assert [event[:2] for event in noted(mesh, 0)] == [("deleted", "given-up")]


def test_what_happens_to_many_jobs_is_noted_once(mesh: Mesh) -> None:
    bench = mesh[0]
    ids = [bench.add("q", "body", "REPLICATE", 1) for _ in range(3)]
    assert bench.get_all(count=3) == ids
    added, client, *others = bench.node.notes.events
    assert (client, *others[:3]) == ("worker", *ids)
    assert isinstance(added, tuple)
    assert added[1:4] == ("added", b"q", "add")
    assert isinstance(others[3], tuple)
    assert others[3][1:4] == ("delivered", b"q", "")
    assert others[4:] == ids


OPTIONS: list[list[str | int]] = [
    ["REPLICATE", 1],
    ["REPLICATE", 1],
    ["REPLICATE", 2],
    ["REPLICATE", 1, "RETRY", 5],
    ["REPLICATE", 1, "TTL", 50],
    ["REPLICATE", 1, "DELAY", 1],
    ["REPLICATE", 1, "PRIORITY", 3],
    ["REPLICATE", 1, "PRIORITY", 3, "GROUP", "g"],
    ["REPLICATE", 1, "GROUP", "h"],
    ["REPLICATE", 1, "HEADERS", 1, "kind", "test"],
]


def lines_of_a_random_run(seed: int, each: bool) -> list[bytes]:
    """Return what the logs of two nodes say, whose events are taken after ``each`` command, or at
    the end."""
    rng = random.Random(seed)
    mesh = Mesh(2, seed)
    clients = [[bench.client(), bench.client()] for bench in mesh.nodes]
    writers = [LineWriter(id.decode()) for id in mesh.ids]
    lines = [b"", b""]
    for bench in mesh.nodes:
        bench.node.notes.eventing = True
    for _ in range(400):
        bench, client = mesh[index := rng.randrange(2)], rng.choice(clients[index])
        known = [job.id for job in bench.node.store.jobs.values()]
        job = ["ADDJOB", rng.choice("qp"), "x" * rng.randrange(1, 3), 0, *rng.choice(OPTIONS)]
        words = rng.choice(
            [
                job,
                job,
                ["GETJOB", "NOHANG", "FROM", "q", "p"],
                ["CLIENT", "SETNAME", rng.choice("ab")],
                *([name, rng.choice(known)] for name in ("ACKJOB", "NACK", "ENQUEUE") if known),
            ]
        )
        bench.send(client, *words)
        if each:
            hand_over(mesh, writers, lines)
        if rng.randrange(20) == 0:
            mesh.advance(rng.choice([0.001, 1.2, 6]))
    hand_over(mesh, writers, lines)
    return lines


def hand_over(mesh: Mesh, writers: list[LineWriter], lines: list[bytes]) -> None:
    for index, bench in enumerate(mesh.nodes):
        events, bench.node.notes.events = bench.node.notes.events, []
        lines[index] += writers[index].lines(events)


@pytest.mark.parametrize("seed", range(10))
def test_what_is_noted_in_short_is_what_is_noted_at_length(seed: int) -> None:
    at_once = lines_of_a_random_run(seed, each=False)
    assert at_once == lines_of_a_random_run(seed, each=True)
    assert min(text.count(b"\n") for text in at_once) > 50


FACTS = {"repl": 1, "ctime": 8, "etime": 2000, "delay": 0, "retry": 9}


def second(**changed: int) -> Job:
    facts = FACTS | changed
    return Job(b"D-2", b"q", b"body", **facts)


def urgent() -> Job:
    job = second()
    job.flags = priority_flags(7)
    return job


def notes(*grouped: Job) -> EventNotes:
    """Return empty notes, of a node where some jobs are in the group ``blue``."""
    machine = Machine("disque", "jobs", {}, Host(), lambda: 0)
    trailers = Trailers(machine.memory, Mesh(1)[0].node.peers, MarkedJobs())
    for job in grouped:
        trailer = Trailer()
        trailer.group = b"blue"
        trailers.put(job, trailer)
    return EventNotes(machine, trailers)


def shared(*holders: bytes) -> Job:
    job = second()
    job.delivered = holders
    return job


@pytest.mark.parametrize(
    ("job", "reason", "peer"),
    [
        (second(repl=2), "add", b""),
        (second(ctime=9), "add", b""),
        (second(etime=2001), "add", b""),
        (second(delay=1), "add", b""),
        (second(retry=8), "add", b""),
        (shared(b"f" * 40, b"e" * 40), "add", b""),
        (urgent(), "add", b""),
        (Job(b"D-2", b"q", b"longer", **FACTS), "add", b""),
        (Job(b"D-2", b"p", b"body", **FACTS), "add", b""),
        (second(), "", b""),
        (second(), "add", b"f" * 40),
    ],
)
def test_what_differs_between_two_jobs_in_a_row_is_noted(
    job: Job, reason: str, peer: bytes
) -> None:
    source = notes()
    source.note("added", Job(b"D-1", b"q", b"body", **FACTS | {"ctime": 7}), "add", new=True)
    source.peer = peer
    source.note("added", job, reason, new=True)
    both = source.events
    source.events = []
    source.note("added", job, reason, new=True)
    lines = LineWriter("0" * 40).lines(both).splitlines()
    assert lines[2:] == LineWriter("0" * 40).lines(source.events).splitlines()
    assert lines[0] != lines[2].replace(b"D-2", b"D-1")


def test_a_job_without_a_group_behind_one_that_has_one_is_noted() -> None:
    first = Job(b"D-00000000-1", b"q", b"body", **FACTS | {"ctime": 7})
    source = notes(first)
    source.note("added", first, new=True)
    source.note("added", second(), new=True)
    assert [event[14:] for event in source.events if isinstance(event, tuple)] == [(0, b"blue"), ()]


def test_a_job_without_copies_behind_one_with_copies_is_noted() -> None:
    source = notes()
    source.note("added", shared(b"f" * 40, b"e" * 40), new=True)
    source.note("added", second(ctime=9), new=True)
    assert [event[9] for event in source.events if isinstance(event, tuple)] == [2, 1]


@pytest.mark.parametrize("how", ["nack", "retry", "queue", "client"])
def test_a_pause_is_noted_with_its_end(mesh: Mesh, how: str) -> None:
    client = how == "client"
    if how == "retry":
        mesh[0]("QSET", "q", "BACKOFF", 50, 50)
    id = mesh.add(0, "REPLICATE", 1, "RETRY", 10)
    assert mesh[0].get() == id
    begun = mesh[0].now
    other = mesh[0].client()
    other.name = b"other"
    if how == "nack" or client:
        mesh[0].ask(other, "NACK", id, "DELAY", 60)
    elif how == "queue":
        mesh[0]("PAUSE", "q", "in")
    if client:
        assert mesh[0]("UPDATEJOB", id, "DELAY", 500) == b"OK"
    mesh.advance(15)
    text = LineWriter("0" * 40).lines(mesh[0].node.notes.events)
    lines = [json.loads(line) for line in text.splitlines()]
    told = [line for line in lines if line["event"] == "paused"]
    assert [line["reason"] for line in told] == (["nack", "client"] if client else [how])
    assert told[-1].get("client", "") == {"nack": "other", "client": "worker"}.get(how, "")
    assert {type(event) for event in mesh[0].node.notes.events} <= {str, bytes, tuple}
    (job,) = mesh[0].node.store.jobs.values()
    assert told[-1]["until"] == job.qtime
    assert 60_000 <= job.qtime - begun <= 61_000 or how not in ("nack", "retry")
    assert (told[-1]["id"], told[-1]["queue"]) == (id.decode(), "q")
    assert not told[-1].keys() & {"size", "priority", "group", "ctime"}
    # What comes after it is noted as usual.
    events = len(lines)
    other = mesh[0].add("others", "body", "REPLICATE", 1)
    text = LineWriter("0" * 40).lines(mesh[0].node.notes.events)
    after = [json.loads(line) for line in text.splitlines()][events:]
    assert [(line["event"], line["id"]) for line in after] == [
        ("added", other.decode()),
        ("queued", other.decode()),
    ]


def test_a_change_is_noted_with_all_that_a_job_has(mesh: Mesh) -> None:
    id = mesh.add(0, "REPLICATE", 2, "RETRY", 10, "DELAY", 5)
    mesh[0].send(mesh[0].me, "UPDATEJOB", id, "RETRY", 999, "DELAY", 70)
    mesh.settle()
    for index in (0, 1):
        text = LineWriter("0" * 40).lines(mesh[index].node.notes.events)
        (line,) = [
            line for line in map(json.loads, text.splitlines()) if line["event"] == "updated"
        ]
        assert (line["retry"], line["delay"], line["repl"]) == (999, 70, 2)


def test_what_comes_after_a_pause_is_noted_in_full() -> None:
    source = notes()
    source.eventing = True
    job = Job(b"D-1", b"q", b"body", **FACTS)
    source.note("queued", job)
    source.note_pause(job, "queue")
    source.note("queued", job)
    lines = LineWriter("0" * 40).lines(source.events).splitlines()
    assert [json.loads(line)["event"] for line in lines] == ["queued", "paused", "queued"]


def test_a_letter_that_is_sent_back_is_ended_by_redrive_and_by_no_client(mesh: Mesh) -> None:
    mesh[0]("QSET", "q", "ATTEMPTS", 1, "DEAD", "dead")
    mesh.advance(1)
    mesh.add(0, "REPLICATE", 2)
    (taken,) = mesh[0]("GETJOB", "FROM", "q")
    mesh[0]("NACK", taken[1])
    mesh.advance(1)
    for index in range(3):
        noted(mesh, index)
    mesh[0].send(mesh[0].me, "REDRIVE", "dead")
    mesh.advance(1)
    found = [noted(mesh, index) for index in range(3)]
    acked = [[what[:2] for what in one if what[0] == "acked"] for one in found]
    assert acked[0] == [("acked", "redrive")]
    assert sorted(acked[1] + acked[2]) == [("acked", "peer")]
    assert ("added", "redrive") in [what[:2] for what in found[0]]


def test_a_policy_that_a_client_sets_or_deletes_is_noted_where_it_does(mesh: Mesh) -> None:
    mesh[0]("QSET", "q", "ATTEMPTS", 2, "DEAD", "dead")
    mesh[0]("QDEL", "q")
    mesh[0]("QDEL", "q")
    mesh.settle()
    found = [what for what in mesh[0].node.notes.events if isinstance(what, tuple)]
    assert [what[1:] for what in found] == [
        ("policy", b"q", b"QSET ATTEMPTS 2 DEAD dead", "worker"),
        ("policy", b"q", b"QDEL", "worker"),
    ]
    assert not mesh[1].node.notes.events


def test_a_job_that_is_moved_says_from_where_and_by_whom(mesh: Mesh) -> None:
    id = mesh.add(0, "REPLICATE", 2)
    mesh[0].send(mesh[0].me, "QMOVE", "q", "other")
    mesh.advance(1)
    mesh[0].send(mesh[0].me, "UPDATEJOB", id, "QUEUE", "third", "RETRY", 77)
    mesh.settle()
    mesh[0].send(mesh[0].me, "UPDATEJOB", id, "RETRY", 78)
    mesh.settle()
    for index in (0, 1):
        text = LineWriter("0" * 40).lines(mesh[index].node.notes.events)
        found = [line for line in map(json.loads, text.splitlines()) if line["event"] == "updated"]
        assert [(line["queue"], line.get("origin"), line["id"]) for line in found] == [
            ("other", "q", id.decode()),
            ("third", "other", id.decode()),
            ("third", None, id.decode()),
        ]
        assert [line.get("client") for line in found] == [None if index else "worker"] * 3
        assert [line["retry"] for line in found][1:] == [77, 78]
