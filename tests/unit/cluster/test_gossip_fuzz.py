"""Whatever other nodes send of the nodes of a cluster, a node starts again and knows the others."""

import random

import pytest

from disque_trio.cluster.keyring import Keyring
from disque_trio.node.core.shared.policies import Policies
from disque_trio.node.core.shared.policy_words import format_file, parse_file
from disque_trio.protocol.bus import FAIL, HEADER_SIZE, KEYS, MEET, PING, PONG, packet_type
from tests.support.cluster_bench import Machine, Wires
from tests.support.fuzzing import BYTES_A_SEED, fuzz_seeds

EXTREMES = (b"\0" * 8, b"\xff" * 8, b"\x7f" + b"\xff" * 7, b"\x80" + b"\0" * 7, b"\n 'x#\0\xff,")
PACKETS_A_TURN = 25


def pair(wires: Wires | None = None) -> tuple[Wires, list[Machine]]:
    """Two nodes that know each other, and their keys."""
    wires = wires or Wires()
    machines = wires.add(2)
    for machine in machines:
        machine.identity = "yes"
        machine.boot(machine.id)
    machines[0].member.meet("10.0.0.2", 7711)
    wires.wait(wires.meshed, 10)
    return wires, machines


@pytest.fixture(scope="module")
def corpus() -> list[bytes]:
    """Packets of each type that a pair sends."""
    found: list[bytes] = []
    wires = Wires()
    carry = wires.carry

    def note(*args: object) -> None:
        found.append(args[2])  # type: ignore[arg-type]
        carry(*args)  # type: ignore[arg-type]

    wires.carry = note  # type: ignore[method-assign]
    _, machines = pair(wires)
    trust = machines[1].member.trust
    assert trust is not None
    for number in range(5):
        trust.expel(b"%032d" % number)
    wires.run(5)
    found.append(machines[0].member.packets.fail(machines[1].id))
    assert {packet_type(packet) for packet in found} == {PING, PONG, MEET, FAIL, KEYS}
    return found


def damaged(packet: bytes, rng: random.Random) -> bytes:
    """``packet`` with a few changes."""
    changed = bytearray(packet)
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = rng.randrange(16, len(changed))
        what = rng.random()
        if what < 0.5:
            changed[at] ^= 1 << rng.randrange(8)
        elif what < 0.8:
            size = rng.choice((1, 2, 4, 8))
            changed[at : at + size] = rng.choice(EXTREMES)[:size]
        elif what < 0.9:
            changed += rng.randbytes(104)
        else:
            del changed[max(at, HEADER_SIZE) :]
    return bytes(changed)


@pytest.mark.parametrize("seed", fuzz_seeds())
def test_a_node_that_got_damaged_packets_starts_again_among_the_others(
    corpus: list[bytes], seed: int
) -> None:
    rng = random.Random(seed)
    wires, (victim, other) = pair()
    assert other.id in [packet[16:56] for packet in corpus]
    by_type = [
        [p for p in corpus if packet_type(p) == type] for type in {*map(packet_type, corpus)}
    ]
    sent = count = fed = 0
    while sent < BYTES_A_SEED:
        packet = damaged(rng.choice(rng.choice(by_type)), rng)
        sent += len(packet)
        count += 1
        links = [link for link in victim.links if link.up and link.peer == packet[16:56]]
        if links:
            fed += 1
            victim.receive(rng.choice(links), packet, wires.now)
        if count % PACKETS_A_TURN == 0:
            wires.run(0.1)
    assert fed > count / 10  # of those that do not name another sender
    assert victim.keyring.pins[other.id].key == other.key
    assert not victim.keyring.is_expelled(other.key)
    assert len(victim.keyring.expelled()) > 0
    again = Keyring()
    again.load(victim.keyring.dump())
    assert again.dump() == victim.keyring.dump()
    victim.keyring = again
    assert victim.member.save() is None
    id, known = victim.id, set(victim.member.everyone())
    extensions = victim.member.extensions()
    assert victim.member.knows(other.id)
    victim.crash()
    wires.run(1)
    victim.boot(b"f" * 40)
    assert victim.id == id
    assert set(victim.member.everyone()) == known
    text = b"".join(format_file(Policies(), extensions))
    read: dict[bytes, int] = {}
    assert parse_file(text, Policies(), read) == []
    assert read == extensions
    wires.wait(lambda: victim.reaches(other) and other.reaches(victim), 60)
