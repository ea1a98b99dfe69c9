"""What a node answers to another one that asks for a key of ADDJOB UNIQUE."""

from pathlib import Path

import pytest

from disque_trio.node.core.jobs import key_messages as words
from disque_trio.node.core.jobs.key_messages import KeyMessage, Vote, read_vote
from disque_trio.node.core.rpc.calls import CLAIM
from disque_trio.node.core.unique.quorum import read_votes
from disque_trio.protocol import bus
from disque_trio.protocol.keyrecord import MAX_KEY, MAX_UNTIL, PENDING
from tests.support.mesh import Mesh
from tests.support.node_bench import loaded_again

FIRST, SECOND = [b"D-%b-%b-05a1" % (one * 8, one * 24) for one in (b"1", b"2")]


@pytest.fixture
def mesh() -> Mesh:
    return Mesh(2)


def claim(
    mesh: Mesh, id: bytes, final: bool = False, instead: bytes = b"", certain: bool = False
) -> Vote:
    """Let node 0 claim a key for the job ``id``; return the vote of node 1."""
    message = KeyMessage(words.CLAIM, b"q", b"k", id)
    message.left = 60_000
    message.final = final
    message.instead = instead
    message.any = certain
    asked = mesh[0].node.rpc.call(CLAIM, message.pack(), [mesh.ids[1]], 1000, lambda question: None)
    mesh.settle()
    return read_votes(asked)[mesh.ids[1]]


@pytest.mark.parametrize(
    ("final", "certain", "passed_over"),
    [(False, False, True), (True, False, False), (True, True, True)],
)
def test_a_job_that_has_its_copies_is_passed_over_only_if_it_is_certainly_gone(
    mesh: Mesh, final: bool, certain: bool, passed_over: bool
) -> None:
    first, second = FIRST, SECOND
    assert claim(mesh, first, final).id == first
    found = claim(mesh, second, instead=first, certain=certain)
    assert found.id == (second if passed_over else first)


def test_a_voter_says_that_it_takes_no_copies_of_a_job_that_was_given_up(mesh: Mesh) -> None:
    given_up = FIRST
    assert claim(mesh, given_up).id == given_up
    mesh[1].node.store.uniques.refuse(given_up)
    found = claim(mesh, given_up, final=True)
    assert (found.id, found.state) == (b"", 0)
    assert claim(mesh, SECOND).state == PENDING  # the key is free again


def test_a_job_that_others_passed_over_gets_no_key_unless_there_is_a_copy(mesh: Mesh) -> None:
    held = mesh.add(0, "REPLICATE", 2, "GROUP", "g")
    for id in (FIRST, held):
        bury = KeyMessage(words.BURY, b"q", b"k", id)
        mesh[0].node.store.uniques.tell(bury, [mesh.ids[1]])
        mesh.settle()
    assert claim(mesh, FIRST, final=True).id == b""
    assert claim(mesh, held, final=True).id == held


@pytest.mark.parametrize(
    ("key", "id", "left", "instead"),
    [
        (b"k", FIRST[:-1] + b"\n", 1000, b""),
        (b"k", b"x" * 40, 1000, b""),
        (b"k", FIRST, 1000, b"x" * 40),
        (b"k", FIRST, 1000, FIRST + b"x"),
        (b"", FIRST, 1000, b""),
        (b"k" * (MAX_KEY + 1), FIRST, 1000, b""),
        (b"k", FIRST, 2**63, b""),
    ],
)
def test_what_the_file_would_not_take_is_not_believed(
    mesh: Mesh, key: bytes, id: bytes, left: int, instead: bytes
) -> None:
    message = KeyMessage(words.CLAIM, b"q", key, id)
    message.lasts, message.left, message.instead = True, left, instead
    packet = mesh[0].node.packets.fields(bus.QUESTION, message.untracked())
    node = mesh[1].node
    node.receive(mesh.ids[0], packet, mesh[1].now)
    assert node.bad_packets == 1
    assert node.store.uniques.entries.count == 0


def test_a_key_for_ever_is_read_again(tmp_path: Path, mesh: Mesh) -> None:
    mesh[1].node.journaling = True
    message = KeyMessage(words.CLAIM, b"", b"k", FIRST)
    message.lasts, message.left = True, MAX_UNTIL
    packet = mesh[0].node.packets.fields(bus.QUESTION, message.untracked())
    mesh[1].node.receive(mesh.ids[0], packet, mesh[1].now)
    again = loaded_again(mesh[1], tmp_path)
    found = again.node.store.uniques.find(b"", b"k")
    assert found is not None
    assert found.until == MAX_UNTIL


@pytest.mark.parametrize(
    ("id", "state", "left", "status"),
    [
        (FIRST[:-2] + b"\r\n", 1, 1, 0),
        (FIRST, 4, 1, 0),
        (FIRST, 1, 2**63, 0),
        (FIRST, 1, 1, 6),
    ],
)
def test_a_vote_that_makes_no_sense_is_no_answer(
    id: bytes, state: int, left: int, status: int
) -> None:
    assert read_vote(Vote(id, state, True, left, status).pack()) is None
    good = read_vote(Vote(FIRST, 1, True, 1, 0).pack())
    assert good is not None
    assert good.id == FIRST
