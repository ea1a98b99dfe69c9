"""What a node answers to another one that asks for a key of ADDJOB UNIQUE."""

import pytest

from disque_trio.node.core import key_messages as words
from disque_trio.node.core.ballots import read_votes
from disque_trio.node.core.key_messages import KeyMessage, Vote
from disque_trio.node.core.questions import CLAIM
from disque_trio.protocol.keyrecord import PENDING
from tests.support.mesh import Mesh


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
    asked = mesh[0].node.questions.ask(
        CLAIM, message.pack(), [mesh.ids[1]], 1000, lambda question: None
    )
    mesh.settle()
    return read_votes(asked)[mesh.ids[1]]


@pytest.mark.parametrize(
    ("final", "certain", "passed_over"),
    [(False, False, True), (True, False, False), (True, True, True)],
)
def test_a_job_that_has_its_copies_is_passed_over_only_if_it_is_certainly_gone(
    mesh: Mesh, final: bool, certain: bool, passed_over: bool
) -> None:
    first, second = b"D-" + b"1" * 38, b"D-" + b"2" * 38
    assert claim(mesh, first, final).id == first
    found = claim(mesh, second, instead=first, certain=certain)
    assert found.id == (second if passed_over else first)


def test_a_voter_says_that_it_takes_no_copies_of_a_job_that_was_given_up(mesh: Mesh) -> None:
    given_up = b"D-" + b"1" * 38
    assert claim(mesh, given_up).id == given_up
    mesh[1].node.store.uniques.refuse(given_up)
    found = claim(mesh, given_up, final=True)
    assert (found.id, found.state) == (b"", 0)
    assert claim(mesh, b"D-" + b"2" * 38).state == PENDING  # the key is free again
