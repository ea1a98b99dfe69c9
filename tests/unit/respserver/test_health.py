"""What any server finds wrong with itself."""

import os
from pathlib import Path

import pytest

from disque_trio.respserver.health import (
    DAY,
    DISK_EVERY,
    Certificate,
    Disks,
    certificate_facts,
    is_short,
)

NOW = 1_700_000_000.0
GIB = 1 << 30


@pytest.mark.parametrize(
    ("days", "kinds"),
    [
        (15, []),
        (13.9, ["certificate-ends"]),
        (0.1, ["certificate-ends"]),
        (-0.1, ["certificate-expired"]),
    ],
)
def test_a_certificate_is_told_of_two_weeks_before_it_ends(days: float, kinds: list[str]) -> None:
    certificate = Certificate("node.pem", NOW - 100 * DAY, NOW + days * DAY)
    facts = list(certificate_facts(certificate, NOW))
    assert [fact.kind for fact in facts] == kinds
    assert all(fact.about == "node.pem" for fact in facts)


def test_a_certificate_that_is_not_valid_yet_is_told_of() -> None:
    certificate = Certificate("node.pem", NOW + 1, NOW + 100 * DAY)
    (fact,) = certificate_facts(certificate, NOW)
    assert fact.kind == "certificate-expired"
    assert "not valid before" in fact.cause


@pytest.mark.parametrize(
    ("free", "size", "short"),
    [
        (11 * GIB, 100 * GIB, False),
        (9 * GIB, 100 * GIB, True),
        (11 * GIB, 1000 * GIB, False),  # a tenth of a large disk is plenty
        (9 * GIB, 1000 * GIB, True),
        (0, 0, False),  # the system cannot tell
    ],
)
def test_a_disk_is_short_by_its_size(free: int, size: int, short: bool) -> None:
    assert is_short(free, size) is short


def test_the_system_is_asked_now_and_then(tmp_path: Path) -> None:
    disks = Disks()
    there = str(tmp_path)
    free, size = disks.space(there, 1000)
    found = os.statvfs(there)
    assert size == found.f_blocks * found.f_frsize
    assert 0 < free <= size
    tmp_path.rmdir()
    assert disks.space(there, 1000 + DISK_EVERY - 1) == (free, size)
    assert disks.space(there, 1000 + DISK_EVERY) == (0, 0)
    assert not list(disks.facts(there, 1000 + DISK_EVERY))
