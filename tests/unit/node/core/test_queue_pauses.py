"""PAUSE with BCAST: all nodes end up with the same pauses, also those that were away."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disque_trio.node.core.pause_words import format_changes, format_file, parse_file
from disque_trio.node.core.queue_pauses import MAX_PAUSES, KnownPauses, QueuePause
from disque_trio.node.core.shared.sharing import COMPARE_EVERY
from disque_trio.node.core.shared.version_words import CHANGES
from disque_trio.node.core.shared.versions import MAX_NAME, Entry
from disque_trio.protocol import bus
from tests.support.mesh import Mesh
from tests.support.node_bench import Bench


def compare(mesh: Mesh, rounds: int = 3) -> None:
    """Let time pass until each node has compared what it knows with others."""
    for _ in range(rounds):
        for bench in mesh.nodes:
            bench.now += COMPARE_EVERY
            bench.node.cron(bench.now)
        mesh.settle()


def states(mesh: Mesh, queue: str = "q") -> list[object]:
    return [bench("PAUSE", queue, "state") for bench in mesh.nodes]


def start_again(bench: Bench, text: bytes) -> None:
    """Let the node forget everything but its file of pauses, ``text``."""
    bench.node.queue_pauses.known.clear()
    for name in list(bench.node.queues.by_name):
        bench.node.federation.pause(name, 0)
    parse_file(text, bench.node.queue_pauses.known)
    bench.node.queue_pauses.resume()


@pytest.mark.parametrize("state", ["in", "out", "all"])
def test_a_node_that_was_away_learns_of_a_pause_and_of_its_end(state: str) -> None:
    mesh = Mesh(3)
    mesh.isolate(2)
    mesh[0]("PAUSE", "q", state, "bcast")
    compare(mesh)
    assert states(mesh) == [state.encode(), state.encode(), b"none"]
    mesh.rejoin(2)
    compare(mesh)
    assert states(mesh) == [state.encode()] * 3
    mesh.isolate(2)
    mesh[1]("PAUSE", "q", "none", "bcast")
    compare(mesh)
    mesh.rejoin(2)
    compare(mesh)
    assert states(mesh) == [b"none"] * 3


def test_a_node_that_joins_later_has_the_pause_and_what_follows_from_it() -> None:
    mesh = Mesh(2)
    mesh.cut(0, 1)
    mesh[0]("PAUSE", "q", "in", "bcast")
    mesh[0]("PAUSE", "p", "out", "bcast")
    mesh[1].add("q", "body", "REPLICATE", 1)
    job = mesh[1].add("p", "body", "REPLICATE", 1)
    mesh.join(0, 1)
    compare(mesh)
    assert mesh[1].get("p") is None
    assert mesh[1].error("ADDJOB", "q", "b", 0).startswith("PAUSED")
    waiting = mesh[1].block("p")
    mesh[0]("PAUSE", "p", "none", "bcast")
    mesh.settle()
    assert mesh[1].got(waiting) == job


def test_of_two_pauses_at_once_the_same_wins_everywhere() -> None:
    mesh = Mesh(3)
    mesh[0]("PAUSE", "q", "in", "bcast")
    mesh[1]("PAUSE", "q", "out", "bcast")
    mesh.settle()
    winner = max(mesh.ids[:2])
    assert states(mesh) == [b"in" if winner == mesh.ids[0] else b"out"] * 3


def test_of_two_pauses_during_a_split_the_later_version_wins() -> None:
    mesh = Mesh(2)
    mesh.cut(0, 1)
    mesh[0]("PAUSE", "q", "in", "bcast")
    mesh[0]("PAUSE", "q", "all", "bcast")
    mesh[1]("PAUSE", "q", "out", "bcast")
    mesh.join(0, 1)
    compare(mesh)
    assert states(mesh) == [b"all"] * 2


def test_a_pause_without_bcast_stays_here() -> None:
    mesh = Mesh(2)
    mesh[0]("PAUSE", "q", "in")
    compare(mesh)
    assert states(mesh) == [b"in", b"none"]
    assert mesh.told() == []


def test_a_pause_without_bcast_counts_here_until_the_next_with_it() -> None:
    mesh = Mesh(2)
    mesh[0]("PAUSE", "q", "all", "bcast")
    mesh.settle()
    mesh[1]("PAUSE", "q", "none")
    compare(mesh)
    assert states(mesh) == [b"all", b"none"]
    start_again(mesh[1], b"".join(format_file(mesh[1].node.queue_pauses.known)))
    assert states(mesh) == [b"all", b"none"]
    mesh[0]("PAUSE", "q", "in", "bcast")
    mesh.settle()
    assert states(mesh) == [b"in", b"in"]
    start_again(mesh[1], b"".join(format_file(mesh[1].node.queue_pauses.known)))
    assert states(mesh) == [b"in", b"in"]


def test_the_end_of_a_pause_ends_local_ones_too() -> None:
    mesh = Mesh(2)
    mesh[1]("PAUSE", "q", "out")
    mesh[0]("PAUSE", "q", "none", "bcast")
    mesh.settle()
    assert states(mesh) == [b"none", b"none"]


def test_c_nodes_are_told_as_by_c_nodes() -> None:
    mesh = Mesh(3)
    mesh.c_nodes.add(2)
    sent: list[bytes] = []
    mesh.lose = lambda source, target, packet: target == 2 and sent.append(packet) is not None
    mesh[0]("PAUSE", "q", "out", "bcast")
    compare(mesh)
    c_disque = mesh[0].node.packets.about_queue(bus.PAUSE, b"q", 2)
    assert sent == [c_disque]
    assert states(mesh)[:2] == [b"out", b"out"]


def test_what_a_c_node_tells_counts_on_each_node_until_the_next() -> None:
    mesh = Mesh(2)
    mesh[0]("PAUSE", "q", "all", "bcast")
    mesh.settle()
    for bench in mesh.nodes:
        packet = bench.node.packets.about_queue(bus.PAUSE, b"q", 0)
        bench.node.receive(b"c" * 40, packet, bench.now)
    compare(mesh)
    assert states(mesh) == [b"none", b"none"]
    start_again(mesh[1], b"".join(format_file(mesh[1].node.queue_pauses.known)))
    assert states(mesh) == [b"none", b"none"]
    mesh[1]("PAUSE", "q", "out", "bcast")
    mesh.settle()
    assert states(mesh) == [b"out", b"out"]


def test_a_late_pause_packet_does_not_undo_a_newer_shared_one() -> None:
    mesh = Mesh(2)
    mesh[0]("PAUSE", "q", "all", "bcast")
    late = [move for move in mesh.moving if bus.packet_type(move[2]) == bus.PAUSE]
    assert late
    mesh.settle()
    mesh[1]("PAUSE", "q", "none", "bcast")
    mesh.settle()
    mesh.moving.extend(late)
    mesh.settle()
    assert states(mesh) == [b"none", b"none"]


def test_a_pause_that_cannot_be_written_is_undone() -> None:
    mesh = Mesh(2)
    bench = mesh[0]
    bench("PAUSE", "q", "in", "bcast")
    bench("PAUSE", "q", "out")
    bench("PAUSE", "p", "out")
    mesh.settle()
    bench.node.queue_pauses.sharing.keep = lambda names: "No space left on device"
    for queue in ("q", "p", "new"):
        assert "No space left" in bench.error("PAUSE", queue, "all", "bcast")
        mesh.settle()
    for queue, found in (("q", [b"out", b"in"]), ("p", [b"out", b"none"]), ("new", [b"none"] * 2)):
        assert states(mesh, queue) == found
    assert bench.node.queue_pauses.known.local == {b"q": 2}


def test_pauses_of_one_turn_that_cannot_be_written_are_undone_together() -> None:
    mesh = Mesh(2)
    bench = mesh[0]
    bench("PAUSE", "q", "in", "bcast")
    bench("PAUSE", "q", "out")
    mesh.settle()
    bench.node.queue_pauses.sharing.keep = lambda names: "No space left on device"
    clients = [bench.client() for _ in range(3)]
    for client, state in zip(clients, ("all", "none", "in"), strict=True):
        bench.send(client, "PAUSE", "q", state, "bcast")
    mesh.settle()
    assert [str(bench.replies(client)[0])[:3] for client in clients] == ["ERR"] * 3
    assert states(mesh) == [b"out", b"in"]
    assert bench.node.queue_pauses.known.local == {b"q": 2}


def test_flushing_forgets_pauses_on_this_node_also_after_a_start() -> None:
    mesh = Mesh(2)
    mesh[0]("PAUSE", "q", "all", "bcast")
    mesh.settle()
    mesh[1]("DEBUG", "FLUSHALL")
    compare(mesh)
    assert states(mesh) == [b"all", b"none"]
    start_again(mesh[1], b"".join(format_file(mesh[1].node.queue_pauses.known)))
    assert states(mesh) == [b"all", b"none"]


def test_a_name_that_is_too_long_to_be_shared_is_told_as_by_c_nodes() -> None:
    mesh = Mesh(2)
    name = "n" * (MAX_NAME + 1)
    mesh[0]("PAUSE", name, "out", "bcast")
    mesh.settle()
    assert states(mesh, name) == [b"out", b"out"]


def test_there_is_a_most_of_pauses(bench: Bench) -> None:
    known = bench.node.queue_pauses.known
    for number in range(MAX_PAUSES):
        name = b"%d" % number
        known.put(known.make(name, QueuePause(name, 1), b"a" * 40, 0))
    assert "maximum" in bench.error("PAUSE", "more", "in", "bcast")
    assert bench("PAUSE", "more", "state") == b"none"
    assert bench("PAUSE", "7", "none", "bcast") == b"none"
    assert bench("PAUSE", "more", "in", "bcast") == b"in"


# ---- the file -----------------------------------------------------------------------------------


def test_the_file_holds_everything_and_changes_can_be_appended() -> None:
    bench = Bench()
    known = bench.node.queue_pauses.known
    bench("PAUSE", "q", "in", "bcast")
    bench("PAUSE", "\n p", "all", "bcast")
    bench("PAUSE", "gone", "out", "bcast")
    text = b"".join(format_file(known)) + CHANGES
    for words in (["gone", "none", "bcast"], ["q", "out"], ["q", "none", "bcast"], ["\n p", "in"]):
        bench("PAUSE", *words)
        text += format_changes(known, [words[0].encode()])
    again = KnownPauses()
    assert parse_file(text, again) == []
    assert b"".join(format_file(again)) == b"".join(format_file(known))
    assert again.digest == known.digest
    assert again.local == {b"\n p": 1}
    assert b"".join(format_file(KnownPauses())) == b""


@pytest.mark.parametrize(
    "line",
    [
        b'local "q" in',
        b"pause 1 " + b"a" * 40 + b' "q" sideways',
        b"pause 1 " + b"a" * 40 + b' "q"',
        b"binding 1 " + b"a" * 40 + b' "q" in',
    ],
)
def test_a_bad_line_is_skipped(line: bytes) -> None:
    known = KnownPauses()
    good = b"pause 1 " + b"a" * 40 + b' "p" in'
    (skipped,) = parse_file(line + b"\n" + good, known)
    assert skipped.startswith("line 1: ")
    assert known.bits(b"p") == 1


@given(st.data())
def test_all_nodes_end_with_the_same_pauses_whatever_order_and_loss(data: st.DataObject) -> None:
    mesh = Mesh(3)
    rng = random.Random(data.draw(st.integers(0, 2**32)))
    mesh.lose = lambda source, target, packet: rng.random() < 0.4
    steps = st.sampled_from(["pause", "pause", "end", "cut", "join", "settle", "compare", "start"])
    for step in data.draw(st.lists(steps, max_size=25)):
        one = data.draw(st.integers(0, 2))
        other = (one + data.draw(st.integers(1, 2))) % 3
        known = mesh[one].node.queue_pauses.known
        if step == "pause":
            mesh[one]("PAUSE", "q", data.draw(st.sampled_from(["in", "out", "all"])), "bcast")
        elif step == "end":
            mesh[one]("PAUSE", "q", "none", "bcast")
        elif step == "cut":
            mesh.cut(one, other)
        elif step == "join":
            mesh.join(one, other)
        elif step == "start":
            start_again(mesh[one], b"".join(format_file(known)))
        elif step == "settle":
            moving = list(mesh.moving)
            rng.shuffle(moving)
            mesh.moving.clear()
            mesh.moving.extend(moving)
            mesh.settle()
        else:
            compare(mesh, 1)
    mesh.lose = lambda source, target, packet: False
    for index in range(3):
        mesh.rejoin(index)
    compare(mesh, 8)
    assert len({bench.node.queue_pauses.known.digest for bench in mesh.nodes}) == 1
    assert len(set(states(mesh))) == 1


def test_an_entry_from_a_later_release_is_read() -> None:
    bench = Bench()
    fields = Entry(b"q", QueuePause(b"q", 2), 3, b"f" * 40, 0).fields() + b"\x63\x01\0\0\0x"
    bench.node.queue_pauses.sharing.on_packet(b"f" * 40, [(1, fields)])
    assert bench("PAUSE", "q", "state") == b"out"


def test_a_queue_that_is_shared_without_a_pause_is_not_paused() -> None:
    """As a newer release may do that shares something else about it."""
    known = KnownPauses()
    assert known.read({1: b"q"}).paused == 0
