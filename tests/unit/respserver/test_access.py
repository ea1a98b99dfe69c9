"""Which rules grant which accesses to queues."""

import random

import pytest

from disque_trio.glob import glob_match
from disque_trio.respserver.access import ADD, KNOW, PATTERN, TAKE, grants

BOTH = TAKE | ADD


@pytest.mark.parametrize(
    ("rights", "need", "enough"),
    [
        (TAKE, TAKE, True),
        (TAKE, ADD, False),
        (TAKE, KNOW, True),
        (TAKE, BOTH, False),
        (ADD, TAKE, False),
        (ADD, ADD, True),
        (ADD, KNOW, True),
        (BOTH, TAKE, True),
        (BOTH, BOTH, True),
        (TAKE, TAKE | PATTERN, True),
        (TAKE, ADD | PATTERN, False),
    ],
)
def test_a_rule_is_enough_if_it_gives_all_that_is_needed(
    rights: int, need: int, enough: bool
) -> None:
    assert grants(b"mail.*", rights, b"mail.in", need) is enough


@pytest.mark.parametrize(
    ("rule", "name", "enough"),
    [
        (b"*", b"*", True),
        (b"*", b"mail.*", True),
        (b"*", b"[ab]*", True),
        (b"**", b"*", True),
        (b"mail.*", b"mail.*", True),
        (b"mail.*", b"mail.in.?", True),
        (b"mail.*", b"mail.[ab]*", True),
        (b"mail.*", b"mail.in", True),  # a pattern without wildcards
        (b"mail.*", b"mail*", False),
        (b"mail.*", b"mail?in", False),
        (b"mail.*", b"*", False),
        (b"mail.*", b"ma[i]l.*", False),
        (b"mail.*", b"ma\\il.*", False),
        (b"mail.*", b"mail[.]*", False),
        (b"mail.?", b"mail.?", True),
        (b"mail.?", b"mail.[ab]", False),  # would be covered, but the check does not look that deep
        (b"mail.?", b"mail.*", False),
        (b"m?il.*", b"m?il.in*", False),
        (b"mail.\\*", b"mail.*", False),
        (b"mail", b"mail*", False),
        (b"", b"*", False),
    ],
)
def test_a_pattern_is_granted_by_the_same_or_by_its_beginning(
    rule: bytes, name: bytes, enough: bool
) -> None:
    assert grants(rule, TAKE, name, TAKE | PATTERN) is enough


def test_a_granted_pattern_matches_nothing_that_the_rule_does_not() -> None:
    rng = random.Random(11)

    def word(letters: str, most: int) -> bytes:
        return "".join(rng.choice(letters) for _ in range(rng.randrange(most))).encode()

    granted = 0
    names = [word("ab.*?[]\\", 6) for _ in range(200)] + [word("ab.", 5) for _ in range(200)]
    for _ in range(5_000):
        rule = word("ab.", 3) + word("ab.*?[]\\", 3) + rng.choice([b"", b"*"])
        pattern = rng.choice([rule, b"a" + rule, rule[:-1], rule + b"*"]) + word("ab.*?[]\\", 4)
        if grants(rule, TAKE, pattern, TAKE | PATTERN):
            granted += 1
            for name in rng.sample(names, 40):
                assert glob_match(rule, name) or not glob_match(pattern, name), (rule, pattern)
    assert granted > 500
