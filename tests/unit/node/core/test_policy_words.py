"""The file of policies reads back as written; damage is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disque_trio.node.core.shared.policies import Policies, Policy
from disque_trio.node.core.shared.policy_words import format_file, parse_file
from disque_trio.node.core.shared.versions import Entry

A, B = b"a" * 40, b"b" * 40
NUMBERS = st.integers(0, 2**32 - 1)
NAMES = st.binary(min_size=1, max_size=20)


Parts = tuple[bytes, Policy | None, int, bytes, int]  # Hypothesis cannot hold a compiled Entry


@st.composite
def entries(draw: st.DrawFn) -> Parts:
    """Draw the arguments of an Entry."""
    name = draw(NAMES)
    clock = draw(st.integers(0, 2**48))
    node = draw(st.sampled_from([A, B]))
    if draw(st.booleans()):
        return name, None, clock, node, draw(st.integers(0, 2**62))
    policy = Policy(name)
    policy.attempts, policy.dead_ttl, policy.ttl = draw(NUMBERS), draw(NUMBERS), draw(NUMBERS)
    policy.dead = draw(NAMES.filter(lambda dead: dead != name) | st.just(b""))
    policy.retry = draw(st.just(-1) | st.integers(1, 2**32 - 1))
    policy.replicate = draw(st.integers(0, 65_535))
    policy.maxlen, policy.active = draw(NUMBERS), draw(NUMBERS)
    policy.maxbytes = draw(st.integers(0, 2**48))
    policy.groups = draw(st.integers(0, 2))
    rates = st.tuples(st.integers(1, 2**32 - 1), st.sampled_from([1, 60, 3_600]))
    policy.rate, policy.period = draw(st.just((0, 0)) | rates)
    policy.burst = draw(NUMBERS) if policy.rate else 0
    if policy.groups:
        policy.group_active = draw(NUMBERS)
        policy.group_rate, policy.group_period = draw(st.just((0, 0)) | rates)
        policy.group_burst = draw(NUMBERS) if policy.group_rate else 0
    policy.delay = draw(st.integers(0, policy.ttl * 1000 - 1 if policy.ttl else 10**9))
    times = sorted((draw(st.integers(1, 10**9)), draw(st.integers(1, 10**9))))
    policy.backoff_min, policy.backoff_max = draw(st.sampled_from([(0, 0), tuple(times)]))
    return name, policy, clock, node, 0


@given(st.lists(entries()), st.dictionaries(st.sampled_from([A, B]), st.integers(0, 65_535)))
def test_what_is_written_is_read_again(found: list[Parts], nodes: dict[bytes, int]) -> None:
    first, second = Policies(), Policies()
    for parts in found:
        first.put(Entry(*parts))
    text = b"".join(format_file(first, nodes))
    read: dict[bytes, int] = {}
    assert parse_file(text, second, read) == []
    assert read == nodes
    assert second.digest == first.digest
    assert second.clock == first.clock
    assert b"".join(format_file(second, nodes)) == text
    assert text.isascii()


def test_nothing_is_written_of_nothing() -> None:
    assert b"".join(format_file(Policies(), {})) == b""


def test_a_person_may_write_it_with_less_care() -> None:
    policies = Policies()
    text = b"\r\n  # mine\npolicy 3 %b mail.* attempts 3   dead 'lost'\r\n\nnode %b 1" % (A, B)
    nodes: dict[bytes, int] = {}
    assert parse_file(text, policies, nodes) == []
    assert nodes == {B: 1}
    assert policies.of(b"mail.x").dead == b"lost"
    assert policies.clock == 3


GOOD = b"policy 1 %b q TTL 5" % A


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"policy", "expected clock"),
        (b"rubbish", "expected clock"),
        (b"\xff\xfe\0", "zero bytes"),
        (b'policy 1 %b "q TTL 5' % A, "quote"),
        (GOOD + b" 6", "syntax error"),
        (GOOD + b" ttl 6", "twice"),
        (GOOD.replace(b"5", b"x"), "TTL must be"),
        (GOOD.replace(b"5", b"5 RETRY 0"), "RETRY 0"),
        (GOOD + b" BURST 3", "BURST needs RATE"),
        (GOOD + b" RATE 5/d", "RATE must be"),
        (GOOD.replace(b" 1 ", b" x "), "number"),
        (GOOD.replace(b" 1 ", b" -1 "), "number"),
        (GOOD.replace(b" 1 ", b' "" '), "number"),
        (GOOD.replace(b" 1 ", b" %d " % (2**62 + 1)), "number"),
        (GOOD.replace(A, b"aa"), "id of a node"),
        (GOOD.replace(A, b"x" * 40), "id of a node"),
        (GOOD.replace(b"q", b'""'), "name"),
        (GOOD.replace(b"q", b"q" * 5_000), "name"),
        (GOOD + b"\n" + GOOD, "twice"),
        (b"deleted 1 %b q" % A, "expected clock"),
        (b"deleted 1 %b q later" % A, "number"),
        (b"clock 99999999999999999999", "number"),
        (b"node %b" % A, "expected clock"),
        (b"node x 1", "id of a node"),
        (b"node %b 99999" % A, "number"),
    ],
)
def test_a_bad_line_is_skipped_and_named(line: bytes, problem: str) -> None:
    policies = Policies()
    text = b"policy 1 %b before TTL 1\n%b\npolicy 1 %b after TTL 1\n" % (A, line, A)
    (skipped,) = parse_file(text, policies, {})
    assert skipped.startswith(("line 2: ", "line 3: "))
    assert problem in skipped
    assert {b"before", b"after"} <= policies.entries.keys()


@given(st.binary(max_size=200))
def test_rubbish_is_read_or_skipped(text: bytes) -> None:
    parse_file(text, Policies(), {})
