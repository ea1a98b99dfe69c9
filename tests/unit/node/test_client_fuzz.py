"""Whatever clients send, two nodes answer each request, lose count of nothing, start again as they
were, and are empty afterwards."""

from pathlib import Path

import pytest

from disque_bananaq.commands.table import build_table as bananaq_table
from disque_trio.node.commands.table import build_table
from disque_trio.syntax import Part, parse
from tests.support.bus_fuzz import changed, dumped, log_events, shared, started_again, works
from tests.support.client_fuzz import Crowd, left
from tests.support.client_grammar import KINDS
from tests.support.fuzzing import BYTES_A_SEED, fuzz_seeds

TURNS = 500  # between looks at what must always hold


@pytest.mark.parametrize("seed", fuzz_seeds(500_000))
def test_nodes_serve_whatever_clients_send(seed: int, tmp_path: Path) -> None:
    crowd = Crowd(seed)
    turns = 0
    while crowd.sent < BYTES_A_SEED:
        crowd.turn()
        turns += 1
        if turns % TURNS == 0:
            for bench in crowd.mesh.nodes:
                assert bench.node.memory.used == bench.counted_memory()
                log_events(bench)
    assert crowd.served > crowd.commands / 10
    assert crowd.refused > crowd.commands / 10
    crowd.restore()
    crowd.advance(1)
    for bench in crowd.mesh.nodes:
        for aof in (b"".join(bench.node.journal), dumped(bench.node)):
            again = started_again(bench, aof, tmp_path)
            assert changed(bench, again) == {}
            for old, new in zip(shared(bench.node), shared(again.node), strict=True):
                assert (new.digest, new.clock) == (old.digest, old.clock)
            works(again, "works")
    crowd.empty()
    for bench in crowd.mesh.nodes:
        assert left(bench.node) == {}
        works(bench, "works")


@pytest.mark.parametrize("name", [name.decode() for name in build_table()])
def test_requests_of_each_command_have_each_word_and_kind_of_its_syntax(name: str) -> None:
    crowd = Crowd(0)
    syntax = crowd.grammar.by_name[name.encode()]
    requests = [crowd.grammar.of(name.encode()) for _ in range(2000)]
    sent = {word for request in requests for word in request}
    for word in words_in(syntax):
        assert word.encode() in sent
    command = crowd.mesh[0].node.commands[name.encode()]
    for part in command.parts:
        assert part in {word.lower() for word in words_in(syntax)}
    assert any(command.min_args <= len(request) <= command.max_args for request in requests)


def test_every_command_of_the_table_is_sent() -> None:
    crowd = Crowd(0)
    sent = {crowd.grammar.request()[0] for _ in range(10_000)}
    assert crowd.mesh[0].node.commands.keys() <= sent


def words_in(part: Part) -> set[str]:
    """All words of a syntax that are sent as they are."""
    found: set[str] = set()
    for inner in (*part.parts, *[choice for choice in part.choices if choice.parts]):
        found |= words_in(inner)
    if part.is_word:
        found.add(part.name)
    elif part.choices:
        found |= {choice.name for choice in part.choices if choice.name}
    elif part.name:
        assert part.name in KINDS, f"what is {part.name}?"
    return found


def test_the_syntax_of_every_other_command_can_be_read_too() -> None:
    for command in bananaq_table().values():
        parse(command.syntax)
    for wrong in ("[a", "a]", "a [b [c]"):
        with pytest.raises(ValueError, match=r"."):
            parse(wrong)
