"""Questions to other nodes: answered, or silence that ends at some time."""

from functools import partial

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from disque_trio.node.core.rpc.calls import OUTCOME, Question
from disque_trio.protocol import bus
from disque_trio.protocol.fields import Field, FieldsError, pack_number, pack_texts, unpack_number
from disque_trio.protocol.trailer import CANCELLED, Ending
from tests.support.mesh import Mesh

TIMEOUT = 500  # ms


class Asker:
    """A question of node 0, which records how often it heard something."""

    def __init__(self, mesh: Mesh) -> None:
        self.mesh = mesh
        self.answers: list[tuple[int, bool]] = []  # answers so far, and whether it was over

    def ask(self, again: int = 0) -> Question:
        return self.mesh[0].node.rpc.call(
            OUTCOME, [(2, b"what?")], self.mesh.ids[1:], TIMEOUT, self.hear, again=again
        )

    def hear(self, question: Question) -> None:
        self.answers.append((len(question.answers), question.over))


def repeat(answer: list[Field], sender: bytes, fields: list[Field]) -> list[Field]:
    """Answer with ``answer`` and the question."""
    return answer + fields


@pytest.fixture
def mesh() -> Mesh:
    mesh = Mesh(3)
    mesh.advance(0)  # they know the time
    for index, bench in enumerate(mesh.nodes):
        answer: list[Field] = [(3, b"%d" % index)]
        bench.node.rpc.handlers[OUTCOME] = partial(repeat, answer)
    return mesh


@pytest.fixture
def asker(mesh: Mesh) -> Asker:
    return Asker(mesh)


def test_all_answers_end_a_question(mesh: Mesh, asker: Asker) -> None:
    question = asker.ask()
    mesh.settle()
    assert question.answers == {
        mesh.ids[1]: [(3, b"1"), (2, b"what?")],
        mesh.ids[2]: [(3, b"2"), (2, b"what?")],
    }
    assert asker.answers == [(1, False), (2, True)]
    mesh.advance(1)
    assert len(asker.answers) == 2
    assert mesh[0].node.next_wake() == 0


def test_a_node_that_has_no_answer_is_waited_for_until_the_time_is_over(
    mesh: Mesh, asker: Asker
) -> None:
    mesh[1].node.rpc.handlers[OUTCOME] = lambda sender, fields: None
    mesh[2].node.rpc.handlers.clear()
    question = asker.ask()
    mesh.advance((TIMEOUT - 1) / 1000)
    assert not question.over
    mesh.advance(0.001)
    assert (question.over, question.answers, asker.answers) == (True, {}, [(0, True)])
    assert question.waiting == mesh.ids[1:]


def test_who_does_not_answer_is_asked_again_more_and_more_slowly(mesh: Mesh, asker: Asker) -> None:
    mesh.lose = lambda source, target, packet: target == 1
    question = asker.ask(100)
    asked: list[int] = []
    begun = mesh[0].now
    for _ in range(TIMEOUT // 10 + 10):
        mesh.advance(0.01)
        asked += [mesh[0].now - begun for told in mesh.told("question") if told[2] == 1]
    assert asked == [10, 100, 300]
    assert question.over
    assert question.waiting == mesh.ids[1:2]


def test_a_repeated_question_ends_with_its_answer(mesh: Mesh, asker: Asker) -> None:
    mesh.lose = lambda source, target, packet: True
    question = asker.ask(100)
    mesh.settle()
    mesh.lose = lambda source, target, packet: False
    mesh.advance(0.11)
    assert (question.over, len(question.answers)) == (True, 2)
    mesh.told()
    mesh.advance(1)
    assert mesh.told() == []


def test_a_question_is_not_repeated_to_who_has_not_read_it_yet(mesh: Mesh, asker: Asker) -> None:
    mesh.lose = lambda source, target, packet: True
    asker.ask(100)
    mesh.settle()
    mesh.told()
    mesh.peers[0].slow = {mesh.ids[1]}
    mesh.advance(0.11)
    assert mesh.told("question") == [(0, "question", 2)]


def test_who_is_not_connected_is_not_asked(mesh: Mesh, asker: Asker) -> None:
    mesh.cut(0, 1)
    question = asker.ask()
    mesh.settle()
    assert list(question.answers) == [mesh.ids[2]]
    assert question.over


def test_c_nodes_are_not_asked(mesh: Mesh, asker: Asker) -> None:
    mesh.c_nodes = {1}
    mesh.told()
    asker.ask()
    assert mesh.told() == [(0, "question", 2)]


def test_if_nobody_can_be_asked_it_is_over_at_once(mesh: Mesh, asker: Asker) -> None:
    mesh.isolate(0)
    assert asker.ask().over
    assert asker.answers == []
    assert mesh[0].node.next_wake() == 0


def test_a_node_that_is_cut_off_after_it_was_asked_is_waited_for_until_the_time_is_over(
    mesh: Mesh, asker: Asker
) -> None:
    question = asker.ask()
    mesh.cut(0, 1)
    mesh.advance(TIMEOUT / 1000)
    assert list(question.answers) == [mesh.ids[2]]
    assert asker.answers == [(1, False), (1, True)]


def test_a_late_answer_is_not_heard(mesh: Mesh, asker: Asker) -> None:
    question = asker.ask()
    packets = list(mesh.moving)
    mesh.moving.clear()
    mesh.advance(1)
    mesh.moving.extend(packets)
    mesh.settle()
    assert (question.answers, asker.answers) == ({}, [(0, True)])
    assert [bench.node.bad_packets for bench in mesh.nodes] == [0, 0, 0]


def test_a_second_answer_of_a_node_and_one_of_a_node_that_was_not_asked_are_not_heard(
    mesh: Mesh,
) -> None:
    asker = Asker(mesh)
    question = mesh[0].node.rpc.call(OUTCOME, [], mesh.ids[1:2], TIMEOUT, asker.hear)
    mesh.settle()
    ticket = (1, pack_number(question.number) + pack_number(OUTCOME))
    for source in (1, 2):
        packet = mesh[source].node.packets.fields(bus.ANSWER, [ticket, (3, b"more")])
        mesh[0].node.receive(mesh.ids[source], packet, mesh[0].now)
    assert question.answers == {mesh.ids[1]: [(3, b"1")]}
    assert asker.answers == [(1, True)]


def test_a_question_that_was_closed_is_heard_no_more(mesh: Mesh, asker: Asker) -> None:
    question = asker.ask()
    mesh[0].node.rpc.close(question)
    mesh.advance(1)
    assert asker.answers == []


def test_flushing_forgets_questions(mesh: Mesh, asker: Asker) -> None:
    asker.ask()
    mesh[0].node.flush()
    mesh.advance(1)
    assert asker.answers == []


def test_what_an_answerer_cannot_read_is_a_bad_packet(mesh: Mesh, asker: Asker) -> None:
    def read(sender: bytes, fields: list[Field]) -> list[Field]:
        unpack_number(fields[0][1])
        return []

    mesh[1].node.rpc.handlers[OUTCOME] = read
    asker.ask()
    mesh.settle()
    assert [bench.node.bad_packets for bench in mesh.nodes] == [0, 1, 0]


def test_an_answer_that_cannot_be_read_is_a_bad_packet(mesh: Mesh) -> None:
    def hear(question: Question) -> None:
        raise FieldsError("no answer")

    mesh[0].node.rpc.call(OUTCOME, [], mesh.ids[1:], TIMEOUT, hear)
    mesh.settle()
    assert mesh[0].node.bad_packets == 2
    assert not mesh[0].node.rpc.open


ticket = st.builds(
    lambda number, kind: pack_number(number) + pack_number(kind),
    st.integers(0, 2),
    st.integers(0, 5),
)
about = st.lists(st.binary(max_size=8) | st.binary(min_size=40, max_size=40), max_size=4)
values = st.one_of(ticket, st.binary(max_size=20), about.map(pack_texts))


@given(
    st.sampled_from([bus.ENDJOB, bus.QUESTION, bus.ANSWER]),
    st.lists(st.tuples(st.integers(0, 4), values), max_size=4),
    st.binary(max_size=6),
)
@example(bus.ENDJOB, [], b"")
def test_any_fields_are_handled_or_a_bad_packet(
    type: int, fields: list[Field], tail: bytes
) -> None:
    mesh = Mesh(2)
    mesh[0].node.rpc.call(OUTCOME, [], mesh.ids[1:], TIMEOUT, lambda question: None)
    mesh.add(0, "REPLICATE", 2)
    used = mesh[0].node.memory.used
    packet = mesh[1].node.packets.fields(type, fields)
    packet = packet[:4] + (len(packet) + len(tail)).to_bytes(4, "big") + packet[8:] + tail
    mesh[0].node.receive(mesh.ids[1], packet, mesh[0].now)
    mesh.settle()
    assert [bench.node.bad_packets for bench in mesh.nodes] in ([0, 0], [1, 0])
    assert mesh[0].node.memory.used == used
    if type == bus.ENDJOB:
        assert mesh[0].node.bad_packets == 1


def test_an_ending_about_something_that_is_no_id_is_a_bad_packet(mesh: Mesh) -> None:
    for id in (b"", b"D-", b"x" * 100_000):
        said = [id, pack_number(2), pack_number(1)]
        fields = [(1, pack_texts(said)), (2, Ending(CANCELLED).pack())]
        packet = mesh[1].node.packets.fields(bus.ENDJOB, fields)
        mesh[0].node.receive(mesh.ids[1], packet, mesh[0].now)
    assert mesh[0].node.bad_packets == 3
    mesh.told()
    mesh.settle()
    assert mesh.told() == []
