"""Whatever other nodes send, a node goes on, starts again, takes changes, and knows afterwards what
it knew before."""

from pathlib import Path

import pytest

from disque_trio.node.core.rpc import calls
from disque_trio.protocol.bus import (
    ANSWER,
    BINDINGS,
    PAUSES,
    POLICIES,
    QUESTION,
    SCHEDULES,
    TYPE_NAMES,
)
from tests.support.bus_fuzz import (
    Corpus,
    Fuzzer,
    changed,
    dumped,
    log_events,
    look_at_all,
    pass_time,
    shared,
    started_again,
    told,
    use,
    work,
    works,
)
from tests.support.fuzzing import BYTES_A_SEED, fuzz_seeds
from tests.support.mesh import Mesh

PACKETS_A_TURN = 25
KINDS = {number for name, number in vars(calls).items() if name.isupper() and name[0] != "_"}
NEWS = {calls.ENDED, calls.UPDATED, calls.WISH, calls.LEFT, calls.LOST, calls.STAYS, calls.UNSURE}


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return Corpus()


def test_a_pair_sends_packets_of_every_type(corpus: Corpus) -> None:
    assert [TYPE_NAMES[type] for type, kinds in corpus.packets.items() if not kinds] == []


def test_a_pair_sends_questions_answers_and_news_of_every_kind(corpus: Corpus) -> None:
    asked = {kind for kind, *_ in corpus.packets[QUESTION]}
    assert asked == KINDS
    assert {kind for kind, *_ in corpus.packets[ANSWER]} == KINDS - NEWS


def test_a_pair_sends_every_field_of_what_nodes_share(corpus: Corpus) -> None:
    for type in (POLICIES, SCHEDULES, BINDINGS, PAUSES):
        fields = {field for kind in corpus.packets[type] for field in kind}
        assert fields == {1, 2, 3, 4} if type == SCHEDULES else {1, 2, 3}, TYPE_NAMES[type]


@pytest.mark.parametrize("seed", fuzz_seeds())
def test_a_node_that_got_damaged_packets_starts_again_as_it_was(
    corpus: Corpus, seed: int, tmp_path: Path
) -> None:
    mesh = Mesh(2, seed=seed + 2)
    victim = mesh[0]
    victim.node.journaling = victim.node.notes.eventing = True
    work(mesh)
    fuzzer = Fuzzer(corpus, mesh, seed)
    sent = 0
    count = 0
    while sent < BYTES_A_SEED:
        packet = fuzzer.packet()
        sent += len(packet)
        count += 1
        victim.node.receive(mesh.ids[1], packet, victim.now)
        if count % PACKETS_A_TURN == 0:
            use(mesh, fuzzer.rng)
            pass_time(mesh, 0.1)
            assert victim.node.memory.used == victim.counted_memory()
    mesh.settle()
    assert 0 < victim.node.bad_packets < count
    assert len(told(victim)) > 0
    look_at_all(victim)
    log_events(victim)
    for aof in (b"".join(victim.node.journal), dumped(victim.node)):
        again = started_again(victim, aof, tmp_path)
        assert changed(victim, again) == {}
        for before, after in zip(shared(victim.node), shared(again.node), strict=True):
            assert (after.digest, after.clock) == (before.digest, before.clock)
        works(again, "works")
    works(victim, "works")
