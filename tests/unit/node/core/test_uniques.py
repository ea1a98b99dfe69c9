"""ADDJOB UNIQUE: no second job with the same key, on one node and in a healthy cluster."""

from io import BytesIO
from tempfile import TemporaryFile

import hiredis
import pytest

from disque_trio.aof.compact import compact
from disque_trio.aof.format import RecordReader
from disque_trio.node.commands.add_options import MAX_KEY
from disque_trio.node.core.unique.quorum import LOOK_GAP
from disque_trio.protocol.bus import (
    ANSWER,
    GOTJOB,
    MAX_CONTROL_PACKET,
    MAX_NAME_IN_FIELDS,
    QUESTION,
    packet_type,
)
from disque_trio.protocol.keyrecord import ADDED
from disque_trio.protocol.serialjob import deljob
from tests.support.mesh import Mesh
from tests.support.node_bench import START, Bench

FOR_10 = ("UNIQUE", "k", "FOR", "10")
FOR_100 = ("UNIQUE", "k", "FOR", "100")


def started_again(old: Bench, data: bytes | None = None) -> Bench:
    """Return a node with the file of ``old``, or with ``data``."""
    bench = Bench(seed=77, id=old.node.id)
    bench.now = bench.node.now = old.now
    for record in RecordReader(BytesIO(b"".join(old.node.journal) if data is None else data)):
        bench.node.load_record(record, False)
    return bench


def journaling() -> Bench:
    bench = Bench()
    bench.node.journaling = True
    return bench


def rewritten(bench: Bench) -> bytes:
    bench.node.start_dump()
    records, all_of_it = bench.node.dump_step(100_000, 1 << 30)
    assert all_of_it
    return b"".join(records)


def compacted(bench: Bench) -> bytes:
    data = b"".join(bench.node.journal)
    with TemporaryFile() as out:
        compact(BytesIO(data), len(data), out, bench.now // 1000)  # type: ignore[arg-type]
        out.seek(0)
        return out.read()


def test_with_extensions_switched_off_files_have_no_records_that_c_nodes_cannot_load() -> None:
    bench = journaling()
    bench("ACKJOB", bench.add("q", "body", *FOR_10))
    assert b"UNIQUE" in b"".join(bench.node.journal)
    bench.node.peers.extended = False
    bench.node.peers.plain = True
    assert b"UNIQUE" not in rewritten(bench)
    bench.node.journal.clear()
    bench("DEBUG", "FLUSHALL")
    assert b"UNIQUE" not in b"".join(bench.node.journal)


def test_with_extensions_switched_off_what_ends_leaves_no_record_of_its_key() -> None:
    bench = journaling()
    id = bench.add("q", "body", *FOR_10)
    bench.node.peers.extended = False
    bench.node.peers.plain = True
    bench("ACKJOB", id)
    assert b"UNIQUE" not in b"".join(bench.node.journal)


# ---- one node ------------------------------------------------------------------------------------


def test_a_repeat_gets_the_same_id_and_adds_nothing() -> None:
    bench = Bench()
    id = bench.add("q", "a", "UNIQUE", "k")
    assert bench.add("q", "b", "UNIQUE", "k") == id
    assert bench.number_queued() == 1
    assert bench.info("stats")["total_jobs_repeated"] == "1"
    assert bench.info("jobs")["unique_keys"] == "1"


def test_a_node_without_a_file_makes_no_records_of_keys() -> None:
    bench = Bench()
    bench("ACKJOB", bench.add("q", "a", "UNIQUE", "k"))
    assert bench.node.journal == []


def test_a_key_is_of_one_queue() -> None:
    bench = Bench()
    assert bench.add("q", "a", "UNIQUE", "k") != bench.add("r", "a", "UNIQUE", "k")
    assert bench.add("q", "a", "UNIQUE", "k") != bench.add("q", "a", "UNIQUE", "l")


@pytest.mark.parametrize("end", ["ACKJOB", "FASTACK", "DELJOB", "TTL"])
def test_the_key_is_free_when_the_job_has_ended(end: str) -> None:
    bench = Bench()
    empty = bench.node.memory.used
    id = bench.add("q", "a", "UNIQUE", "k", "TTL", 5)
    bench.get()
    assert bench.add("q", "a", "UNIQUE", "k") == id  # taken, not ended
    if end == "TTL":
        bench.advance(7)
    else:
        bench(end, id)
    assert bench.info("jobs")["unique_keys"] == "0"
    assert bench.add("q", "a", "UNIQUE", "k") != id
    assert bench.node.memory.used == bench.counted_memory() > empty


def test_with_for_the_key_is_kept_whatever_came_of_the_job() -> None:
    bench = Bench()
    id = bench.add("q", "a", *FOR_10)
    bench("ACKJOB", id)
    bench.advance(9.9)
    assert bench.add("q", "a", *FOR_10) == id
    bench.advance(0.2)
    assert bench.add("q", "a", *FOR_10) != id


def test_with_for_the_key_is_free_then_although_the_job_lives() -> None:
    bench = Bench()
    id = bench.add("q", "a", *FOR_10)
    bench.advance(10)
    assert bench.add("q", "a", *FOR_10) != id
    assert bench.number_queued() == 2


def test_what_is_over_is_forgotten_in_time() -> None:
    bench = Bench()
    for number in range(50):
        bench("ACKJOB", bench.add("q", "a", "UNIQUE", number, "FOR", 1))
    bench.advance(2)
    for _ in range(100):
        bench.node.cron(bench.now)
    assert bench.info("jobs")["unique_keys"] == "0"
    assert bench.node.memory.used == bench.counted_memory()


def test_a_flush_forgets_the_keys() -> None:
    bench = Bench()
    id = bench.add("q", "a", *FOR_10)
    bench.node.flush()
    assert bench.add("q", "a", *FOR_10) != id
    assert bench.node.memory.used == bench.counted_memory()


def test_a_repeat_is_answered_where_nothing_could_be_added() -> None:
    bench = Bench()
    id = bench.add("q", "a", "UNIQUE", "k")
    assert bench.add("q", "a", "MAXLEN", 1, "UNIQUE", "k") == id
    bench("PAUSE", "q", "in")
    assert bench.add("q", "a", "UNIQUE", "k") == id
    assert bench.error("ADDJOB", "q", "a", 0, "UNIQUE", "l").startswith("PAUSED ")


def test_show_names_the_key() -> None:
    bench = Bench()
    assert bench.show(bench.add("q", "a", "UNIQUE", "k"))[b"unique-key"] == b"k"
    assert b"unique-key" not in bench.show(bench.add("q", "a"))


@pytest.mark.parametrize(
    "options",
    [
        ("UNIQUE",),
        ("UNIQUE", ""),
        ("UNIQUE", "k" * (64 * 1024 + 1)),
        ("UNIQUE", "k" * 10_000_000),
        ("UNIQUE", "k", "UNIQUE", "k"),
        ("FOR", "10"),
        ("ANYWAY",),
        ("UNIQUE", "k", "FOR"),
        ("UNIQUE", "k", "FOR", "0"),
        ("UNIQUE", "k", "FOR", "-1"),
        ("UNIQUE", "k", "FOR", "1.5"),
        ("UNIQUE", "k", "FOR", "4294967296"),
        ("UNIQUE", "k", "FOR", "9" * 30),
        ("UNIQUE", "k", "FOR", "1", "FOR", "2"),
    ],
)
def test_bad_options_are_refused(options: tuple[str, ...]) -> None:
    bench = Bench()
    assert bench.error("ADDJOB", "q", "a", 0, *options).startswith("ERR ")
    assert bench.node.memory.used == bench.counted_memory() == 0


def test_the_longest_key_and_odd_bytes_are_taken() -> None:
    bench = Bench()
    for key in (b"k" * 64 * 1024, b"\r\n\0", b"maxlen", b"unique"):
        id = bench("ADDJOB", "q", "a", 0, "UNIQUE", key, "ANYWAY")
        assert bench("ADDJOB", "q", "a", 0, "unique", key) == id


# ---- its file ------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [None, rewritten, compacted])
def test_keys_survive_a_restart(how: object) -> None:
    bench = journaling()
    living = bench.add("q", "a", "UNIQUE", "living")
    lasting = bench.add("q", "a", "UNIQUE", "lasting", "FOR", 10)
    kept = bench.add("q", "a", "UNIQUE", "kept", "FOR", 10)
    done = bench.add("q", "a", "UNIQUE", "done")
    once = bench.add("r", "a", "UNIQUE", "once", "FOR", 10, "RETRY", 0, "REPLICATE", 1)
    bench("ACKJOB", kept, done)
    assert bench.get("r") == once
    again = started_again(bench, how(bench) if callable(how) else None)
    assert again.add("q", "a", "UNIQUE", "living") == living
    assert again.add("q", "a", "UNIQUE", "lasting") == lasting
    assert again.add("q", "a", "UNIQUE", "kept") == kept
    assert again.add("r", "a", "UNIQUE", "once") == once
    assert again.add("q", "a", "UNIQUE", "done") != done
    assert again.node.memory.used == again.counted_memory()


def test_a_job_that_was_given_up_does_not_have_its_key_after_a_restart() -> None:
    mesh = Mesh(3)
    bench = mesh[1]
    bench.node.journaling = True
    client = mesh[0].client()
    mesh.lose = lambda source, target, packet: packet_type(packet) == GOTJOB
    mesh[0].send(client, "ADDJOB", "q", "a", 200, "REPLICATE", 3, *FOR_100)
    mesh.settle()
    (id,) = [id for shard in bench.node.store.jobs.shards for id in shard]
    mesh.advance(1)
    assert mesh.holders(id) == []
    # What it says of the key may come later, or not at all: another job may have it meanwhile.
    records = b"".join(bench.node.journal)
    again = started_again(bench, records[: records.index(deljob(id)) + len(deljob(id))])
    assert again.info("jobs")["registered_jobs"] == "0"
    assert again.add("q", "a", *FOR_100) != id


def test_a_key_whose_time_is_over_is_not_loaded() -> None:
    bench = journaling()
    kept = bench.add("q", "a", *FOR_10)
    bench("ACKJOB", kept)
    bench.now = START + 10_000
    assert started_again(bench).info("jobs")["unique_keys"] == "0"
    assert compacted(bench) == b""


# ---- a cluster -----------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [(), ("ASYNC",), ("REPLICATE", 1), ("REPLICATE", 2)])
@pytest.mark.parametrize("size", [2, 3, 5])
def test_a_repeat_at_another_node_gets_the_same_id(size: int, options: tuple[str]) -> None:
    mesh = Mesh(size)
    id = mesh.add(0, *options, "UNIQUE", "k")
    assert {mesh.add(index, *options, "UNIQUE", "k") for index in range(size)} == {id}
    mesh[1]("ACKJOB", id)
    mesh.advance(2)
    assert sum(bench.node.store.uniques.entries.count for bench in mesh.nodes) == 0
    assert mesh.add(size - 1, "UNIQUE", "k") != id


def test_the_key_is_free_at_once_when_the_job_is_acknowledged_while_a_holder_is_away() -> None:
    mesh = Mesh(3)
    id = mesh.add(0, "REPLICATE", 3, "UNIQUE", "k")
    mesh.isolate(2)
    mesh[0]("ACKJOB", id)
    mesh.settle()
    assert mesh.states(id)[:2] == ["acked", "acked"]
    assert [bench.info("jobs")["unique_keys"] for bench in mesh.nodes[:2]] == ["0", "0"]


def test_copies_of_jobs_without_keys_take_no_key() -> None:
    mesh = Mesh(3)
    mesh.add(0, "REPLICATE", 3, "GROUP", "g")
    assert [bench.info("jobs")["unique_keys"] for bench in mesh.nodes] == ["0", "0", "0"]


def test_of_two_adds_at_once_one_wins() -> None:
    mesh = Mesh(3)
    clients = [bench.client() for bench in mesh.nodes]
    for bench, client in zip(mesh.nodes, clients, strict=True):
        bench.send(client, "ADDJOB", "q", "a", 2000, "UNIQUE", "k")
    mesh.advance(2)
    replies = [bench.replies(c) for bench, c in zip(mesh.nodes, clients, strict=True)]
    assert len({str(reply) for reply in replies}) == 1
    assert isinstance(replies[0][0], (bytes, str))
    assert sum(bench.number_queued() for bench in mesh.nodes) == 1


def test_without_a_majority_nothing_is_added_unless_anyway() -> None:
    mesh = Mesh(3)
    mesh.isolate(0)
    bench = mesh[0]
    mesh.peers[0].reachable = []
    bench.send(bench.me, "ADDJOB", "q", "a", 200, "REPLICATE", 1, "UNIQUE", "k")
    mesh.advance(1)
    (reply,) = bench.replies(bench.me)
    assert isinstance(reply, hiredis.ReplyError)
    assert str(reply).startswith("NOUNIQ ")
    assert bench.node.memory.used == bench.counted_memory()
    here = mesh.add(0, "REPLICATE", 1, "UNIQUE", "k", "ANYWAY")
    there = mesh.add(1, "REPLICATE", 2, "UNIQUE", "k", "ANYWAY")
    assert here != there  # either side of the partition
    assert mesh.add(1, "REPLICATE", 2, "UNIQUE", "k", "ANYWAY") == there


@pytest.mark.parametrize("lost", [QUESTION, ANSWER])
@pytest.mark.parametrize("anyway", [(), ("ANYWAY",)])
def test_a_lost_packet_costs_a_moment(lost: int, anyway: tuple[str, ...]) -> None:
    mesh = Mesh(3)
    bench = mesh[0]
    other = mesh.add(1, "REPLICATE", 1, "UNIQUE", "k")
    mesh.lose = lambda source, target, packet: (
        0 in (source, target) and (packet_type(packet) == lost)
    )
    bench.send(bench.me, "ADDJOB", "q", "a", 2000, "REPLICATE", 1, "UNIQUE", "k", *anyway)
    mesh.settle()
    mesh.lose = lambda source, target, packet: False
    mesh.advance(0.15)
    assert bench.replies(bench.me) == [other]


def test_what_others_say_while_copies_are_made_counts_for_anyway_too() -> None:
    """A node that was suspended asks before the others have connected to it again."""
    mesh = Mesh(3)
    mesh.lose = lambda source, target, packet: target == 0
    other = mesh[1]
    other.send(other.me, "ADDJOB", "q", "b", 2000, "REPLICATE", 2, "UNIQUE", "k", "FOR", 60)
    mesh.advance(1)
    (there,) = other.replies(other.me)
    mesh.lose = lambda source, target, packet: target == 0 and packet_type(packet) == ANSWER
    bench = mesh[0]
    bench.send(
        bench.me, "ADDJOB", "q", "a", 2000, "REPLICATE", 2, "UNIQUE", "k", "FOR", 60, "ANYWAY"
    )
    mesh.advance(0.49)
    assert bench.replies(bench.me) == []
    mesh.lose = lambda source, target, packet: False
    mesh.advance(1)
    assert bench.replies(bench.me) == [there]
    assert [bench.number_queued() for bench in mesh.nodes] == [0, 1, 0]
    assert bench.node.store.jobs.count == 0
    assert bench.node.claims.repeats == 1
    assert mesh.add(0, "REPLICATE", 2, "UNIQUE", "k") == there


@pytest.mark.parametrize("anyway", ["", "ANYWAY"])
def test_what_another_node_is_about_to_add_is_not_added_when_the_time_is_over(anyway: str) -> None:
    """Not even if the last answers would have come too late."""
    mesh = Mesh(3)
    mesh.lose = lambda source, target, packet: source == 2 and packet_type(packet) == GOTJOB
    first, second = mesh[0], mesh[1]
    first.send(first.me, "ADDJOB", "q", "a", 2500, "UNIQUE", "k", "REPLICATE", 3)
    mesh.settle()
    options = [anyway] if anyway else []
    second.send(second.me, "ADDJOB", "q", "b", 2000, "UNIQUE", "k", *options)
    mesh.advance(1.9)
    mesh.lose = lambda source, target, packet: (
        (source == 2 and packet_type(packet) == GOTJOB)
        or (target == 1 and packet_type(packet) == ANSWER)
    )
    mesh.advance(0.2)
    (reply,) = second.replies(second.me)
    assert str(reply).startswith("NOUNIQ ")
    mesh.advance(3)
    (reply,) = first.replies(first.me)
    assert str(reply).startswith("NOREPL ")
    assert [bench.node.store.jobs.count for bench in mesh.nodes] == [0, 0, 0]


def test_what_cannot_be_added_leaves_the_key_free() -> None:
    mesh = Mesh(3)
    for bench in mesh.nodes:
        bench("PAUSE", "q", "in")
    bench = mesh[0]
    bench.send(bench.me, "ADDJOB", "q", "a", 200, "UNIQUE", "k")
    mesh.settle()
    (reply,) = bench.replies(bench.me)
    assert str(reply).startswith("PAUSED ")
    assert sum(bench.node.store.uniques.entries.count for bench in mesh.nodes) == 0
    assert bench.node.memory.used == bench.counted_memory()


def test_the_longest_name_and_the_longest_key_fit_into_a_packet() -> None:
    mesh = Mesh(3)
    bench = mesh[0]
    key = "k" * MAX_KEY
    bench.send(bench.me, "ADDJOB", "q" * MAX_NAME_IN_FIELDS, "a", 0, "REPLICATE", 1, "UNIQUE", key)
    bench.node.commit()
    assert 0 < max(len(packet) for _, _, packet in mesh.moving) <= MAX_CONTROL_PACKET
    mesh.settle()
    assert len(bench.replies(bench.me)) == 1
    too_long = "q" * (MAX_NAME_IN_FIELDS + 1)
    assert bench.error("ADDJOB", too_long, "a", 0, "REPLICATE", 1, "UNIQUE", key) == (
        f"ERR UNIQUE takes queue names of up to {MAX_NAME_IN_FIELDS} bytes"
    )


def test_a_client_that_leaves_leaves_no_copy_and_no_key() -> None:
    mesh = Mesh(3)
    bench = mesh[0]
    client = bench.client()
    mesh.lose = lambda source, target, packet: source == 2 and packet_type(packet) == GOTJOB
    bench.send(client, "ADDJOB", "q", "a", 0, "UNIQUE", "k", "REPLICATE", 3)
    mesh.settle()
    assert mesh[1].node.store.jobs.count == 1
    mesh.lose = lambda source, target, packet: False
    bench.disconnect(client)
    mesh.advance(1)
    assert [bench.node.store.jobs.count for bench in mesh.nodes] == [0, 0, 0]
    assert sum(bench.node.store.uniques.entries.count for bench in mesh.nodes) == 0


def test_who_decides_about_a_key_is_not_asked_again_after_the_job_is_given_up() -> None:
    mesh = Mesh(3)
    mesh.peers[0].reachable = [mesh.ids[1]]  # the other one gets no copy
    mesh.lose = lambda source, target, packet: (
        packet_type(packet) == GOTJOB or (target == 2 and packet_type(packet) == QUESTION)
    )
    bench = mesh[0]
    bench.send(bench.me, "ADDJOB", "q", "a", LOOK_GAP + 20, "UNIQUE", "k", "REPLICATE", 2)
    mesh.advance(LOOK_GAP / 1000 + 0.01)  # they have been asked again
    mesh.lose = lambda source, target, packet: False
    mesh.advance(1)
    (reply,) = bench.replies(bench.me)
    assert str(reply).startswith("NOREPL ")
    assert sum(bench.node.store.uniques.entries.count for bench in mesh.nodes) == 0


def test_replies_stay_in_the_order_of_the_requests() -> None:
    mesh = Mesh(3)
    bench = mesh[0]
    for words in (["UNIQUE", "k"], ["REPLICATE", "1"], ["UNIQUE", "k"], ["UNIQUE", "l"]):
        bench.send(bench.me, "ADDJOB", "q", "a", 0, *words)
    mesh.advance(1)
    first, plain, repeat, other = bench.replies(bench.me)
    assert first == repeat
    assert len({first, plain, other}) == 3


def test_a_node_that_leaves_has_the_job_added_elsewhere() -> None:
    mesh = Mesh(3)
    mesh[0].node.set_leaving(True)
    id = mesh.add(0, "REPLICATE", 1, "UNIQUE", "k")
    assert mesh.add(0, "REPLICATE", 1, "UNIQUE", "k") == id
    assert mesh.add(1, "REPLICATE", 1, "UNIQUE", "k") == id
    assert len(mesh.holders(id)) == 1
    states = [e.state for bench in mesh.nodes for e in bench.node.store.uniques.entries.values()]
    assert states == [ADDED] * 3


def test_a_job_that_moves_keeps_its_key() -> None:
    mesh = Mesh(3)
    id = mesh.add(0, "RETRY", 0, "REPLICATE", 1, "UNIQUE", "k")
    taker = mesh[1].block()
    mesh.advance(1)
    assert mesh[1].got(taker) == id
    assert mesh.holders(id) == [1]
    assert {mesh.add(i, "RETRY", 0, "REPLICATE", 1, "UNIQUE", "k") for i in range(3)} == {id}


def test_a_node_that_gave_a_job_away_knows_its_key_after_a_restart() -> None:
    mesh = Mesh(2)
    mesh[0].node.journaling = True
    id = mesh.add(0, "RETRY", 0, "REPLICATE", 1, "UNIQUE", "k")
    taker = mesh[1].block()
    mesh.advance(1)
    assert mesh[1].got(taker) == id
    assert started_again(mesh[0]).info("jobs")["unique_keys"] == "1"


def test_beside_a_c_node_the_option_is_refused() -> None:
    mesh = Mesh(2)
    mesh.c_nodes = {1}
    mesh.peers[0].judge_extensions()
    assert mesh[0].error("ADDJOB", "q", "a", 0, "UNIQUE", "k").startswith("NOEXT ")


def killed_with_one_copy_made(size: int, copies: int, *options: str) -> tuple[Mesh, bytes]:
    """Return a mesh without node 0, which was killed during an ADDJOB while one node had a copy of
    its job; and the job's id."""
    mesh = Mesh(size)
    bench = mesh[0]
    bench.send(bench.me, "ADDJOB", "q", "a", 0, "UNIQUE", "k", "REPLICATE", copies, *options)
    while not any(other.node.store.jobs.count for other in mesh.nodes[1:]):
        mesh._commit()
        source, target, packet = mesh.moving.popleft()
        mesh[target].node.receive(mesh.ids[source], packet, mesh[target].now)
    mesh.isolate(0)
    (id,) = [job.id for b in mesh.nodes[1:] for job in b.node.store.jobs.values()]
    return mesh, id


def repeated(mesh: Mesh, index: int, *options: str | int) -> object:
    """The reply of a node to an ADDJOB with the key, which takes a while."""
    bench = mesh[index]
    bench.send(bench.me, "ADDJOB", "q", "b", 900, "UNIQUE", "k", "REPLICATE", *options)
    mesh.advance(1)
    (reply,) = bench.replies(bench.me)
    return reply


@pytest.mark.parametrize("first", [1, 2])
def test_another_node_ends_what_a_killed_one_began(first: int) -> None:
    """Its producer may have received the id: it repeats the ADDJOB, and gets that id."""
    mesh, id = killed_with_one_copy_made(3, 2)
    assert repeated(mesh, first, 2) == id
    assert mesh.holders(id) == [0, 1, 2]  # the copy of the killed node does not count
    assert mesh.add(3 - first, "UNIQUE", "k", "REPLICATE", 2) == id
    mesh.rejoin(0)
    mesh.advance(1)
    assert mesh[0].replies(mesh[0].me) == [id]


@pytest.mark.parametrize("options", [(), ("FOR", "10")])
def test_who_decides_learns_whether_the_key_outlives_the_job(options: tuple[str, ...]) -> None:
    mesh, id = killed_with_one_copy_made(5, 2, *options)
    (holder,) = mesh.holders(id)[1:]
    voters = [bench.node.store.uniques for bench in mesh.nodes[1:] if bench is not mesh[holder]]
    (first, entry), *_ = [(one, entry) for one in voters if (entry := one.find(b"q", b"k"))]
    first.drop(entry)  # it was restarted without its file
    assert repeated(mesh, holder, 2, *options) == id
    again = first.find(b"q", b"k")
    assert again is not None
    assert (again.id, again.state, again.lasts) == (id, ADDED, bool(options))


@pytest.mark.parametrize("options", [(), ("FOR", "10")])
def test_its_node_does_not_take_it_back_then(options: tuple[str, ...]) -> None:
    """Nor after the time of its key, when everything about it is forgotten."""
    mesh, id = killed_with_one_copy_made(3, 2, *options)
    assert repeated(mesh, 1, 2, *options) == id
    holders = mesh.holders(id)[1:]
    mesh.advance(11)
    mesh.rejoin(0)
    mesh[0].node.forget_client(mesh[0].me)
    mesh.settle()
    assert mesh.holders(id) == holders != []


@pytest.mark.parametrize("first", [1, 2])
def test_what_a_killed_node_began_is_no_answer_while_copies_are_missing(first: int) -> None:
    mesh, _ = killed_with_one_copy_made(3, 3)
    assert str(repeated(mesh, first, 2)).startswith("NOUNIQ ")


def test_with_for_a_key_is_kept_although_nobody_knows_that_the_job_ended() -> None:
    """Its voters know that it was added, and the node that ended it is out of reach."""
    mesh = Mesh(5)
    id = mesh.add(0, "REPLICATE", 1, *FOR_10)
    mesh[0]("ACKJOB", id)
    mesh.settle()
    mesh.isolate(0)
    for index in range(1, 5):
        assert mesh.add(index, "REPLICATE", 1, *FOR_10) == id


def test_with_for_a_key_is_kept_although_only_an_outsider_knows_that_the_job_ended() -> None:
    """The node that began to add it and the one with a copy are out of reach."""
    mesh, id = killed_with_one_copy_made(5, 3, *FOR_10[2:])
    holder = mesh.holders(id)[-1]
    mesh.isolate(holder)
    outsiders = [index for index in range(1, 5) if index != holder]
    mesh[outsiders[0]]("ACKJOB", id)
    assert mesh.add(outsiders[1], "REPLICATE", 2, *FOR_10) == id


def test_a_job_with_too_few_copies_is_no_answer_for_who_wants_more() -> None:
    mesh, first = killed_with_one_copy_made(4, 3)
    (holder,) = mesh.holders(first)[-1:]
    bench = mesh[1]
    bench.send(bench.me, "ADDJOB", "q", "b", 3000, "UNIQUE", "k", "REPLICATE", 3)
    mesh.advance(4)
    (reply,) = bench.replies(bench.me)
    assert str(reply).startswith("NOUNIQ ")
    mesh[holder]("ACKJOB", first)
    mesh.advance(1)
    assert mesh.add(1, "UNIQUE", "k", "REPLICATE", 3) != first


@pytest.mark.parametrize("options", [(), ("FOR", "10")])
def test_a_claim_whose_node_is_killed_before_any_copy_is_passed_over(
    options: tuple[str, ...],
) -> None:
    mesh = Mesh(3)
    bench = mesh[0]
    bench.send(bench.me, "ADDJOB", "q", "a", 0, "UNIQUE", "k", "REPLICATE", 2, *options)
    mesh._commit()
    for target in (1, 2):
        moves = [move for move in mesh.moving if move[1] == target]
        mesh[target].node.receive(mesh.ids[0], moves[0][2], mesh[target].now)
    mesh.isolate(0)
    id = mesh.add(1, "UNIQUE", "k", "REPLICATE", 2, *options)
    assert mesh.add(2, "UNIQUE", "k", "REPLICATE", 2, *options) == id
    assert mesh.holders(id) != []
    mesh.rejoin(0)
    mesh.advance(6)
    (reply,) = bench.replies(bench.me)
    assert reply == id or str(reply).startswith("NOUNIQ ")
    assert sum(b.number_queued() for b in mesh.nodes) == 1


def test_a_claim_that_others_gave_up_is_refused_when_its_node_comes_back() -> None:
    """They take no copies of its job, or its producer would wait forever."""
    mesh = Mesh(3)
    bench = mesh[0]
    mesh.isolate(0)
    bench.send(bench.me, "ADDJOB", "q", "a", 0, "UNIQUE", "k", "REPLICATE", 3)
    (first,) = bench.node.claims.claiming
    for other in (1, 2):
        mesh[other].node.store.uniques.refuse(first)
    mesh.rejoin(0)
    mesh.advance(6)
    (reply,) = bench.replies(bench.me)
    assert str(reply).startswith("NOUNIQ ")
    assert sum(b.node.store.jobs.count for b in mesh.nodes) == 0
    assert sum(b.node.store.uniques.entries.count for b in mesh.nodes) == 0
    assert mesh.add(0, "UNIQUE", "k", "REPLICATE", 3) != first


def given_up_with_a_copy_left(mesh: Mesh) -> bytes:
    """Give up an ADDJOB of node 0 while node 3 has a copy; return the id of its job."""
    bench = mesh[0]
    mesh.lose = lambda source, target, packet: (
        packet_type(packet) == GOTJOB or (target == 3 and packet_type(packet) == QUESTION)
    )
    bench.send(bench.me, "ADDJOB", "q", "a", 300, "UNIQUE", "k", "REPLICATE", 4)
    mesh.advance(0.1)
    (job,) = mesh[3].node.store.jobs.values()
    mesh.advance(2)
    (reply,) = bench.replies(bench.me)
    assert str(reply).startswith(("NOREPL ", "NOUNIQ "))
    assert mesh.holders(job.id) == [3]
    mesh.lose = lambda source, target, packet: False
    return job.id


@pytest.mark.parametrize("at", [0, 1, 2, 3])
def test_a_copy_that_is_left_of_a_job_that_was_given_up_does_not_pass_for_the_job(at: int) -> None:
    mesh = Mesh(4)
    first = given_up_with_a_copy_left(mesh)
    bench = mesh[at]
    bench.send(bench.me, "ADDJOB", "q", "b", 3000, "UNIQUE", "k", "REPLICATE", 4)
    mesh.advance(3)
    (id,) = bench.replies(bench.me)
    assert isinstance(id, bytes)
    assert id != first
    assert mesh.holders(id) == [0, 1, 2, 3]
    assert mesh.holders(first) == []
