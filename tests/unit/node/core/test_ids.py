"""Ids of jobs, and their order by creation time."""

import re

import pytest

from disque_trio.node.core.jobs.job import JobIds
from disque_trio.protocol.serialjob import is_job_id
from tests.support.node_bench import Bench

DAY = 86_400


def test_an_id_is_d_node_random_ttl(bench: Bench) -> None:
    id = bench.add()
    assert re.fullmatch(rb"D-[0-9a-f]{8}-[A-Za-z0-9+/]{24}-[0-9a-f]{4}", id)
    assert len(id) == 40
    assert id[2:10] == bench.node.id[:8]
    assert is_job_id(id)


@pytest.mark.parametrize(
    ("ttl", "with_retry", "without_retry"),
    [
        (1, b"0001", b"0000"),
        (59, b"0001", b"0000"),
        (60, b"0001", b"0000"),
        (120, b"0003", b"0002"),
        (180, b"0003", b"0002"),
        (DAY, b"05a1", b"05a0"),
        (65535 * 60, b"ffff", b"fffe"),
        (65536 * 60, b"ffff", b"fffe"),
        (2**63 - 1, b"ffff", b"fffe"),
    ],
)
def test_the_end_of_an_id_is_the_ttl_in_minutes_and_its_low_bit_the_guarantee(
    bench: Bench, ttl: int, with_retry: bytes, without_retry: bytes
) -> None:
    assert bench.add("q", "b", "TTL", ttl, "RETRY", 1)[36:] == with_retry
    assert bench.add("q", "b", "TTL", ttl, "RETRY", 0)[36:] == without_retry


def test_a_hundred_thousand_ids_differ(bench: Bench) -> None:
    made = {bench.node.store.ids.make(DAY, 300) for _ in range(100_000)}
    assert len(made) == 100_000


def test_an_id_holds_144_bits_of_what_the_entropy_gives() -> None:
    asked: list[int] = []

    def entropy(count: int) -> bytes:
        asked.append(count)
        return bytes(range(256)) * (count // 256) + bytes(count % 256)

    ids = JobIds(b"a" * 40, entropy)
    made = [ids.make(60, 1) for _ in range(1000)]
    assert sum(asked) >= len(made) * 144 // 8
    assert all(is_job_id(id) for id in made)


def test_two_nodes_make_different_ids() -> None:
    assert Bench(seed=1).add()[2:35] != Bench(seed=2).add()[2:35]


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"D-",
        b"x" * 40,
        b"D-dcb833cf-8YL1NT17e9+wsA/09NqxscQI-05a",
        b"D-dcb833cf-8YL1NT17e9+wsA/09NqxscQI-05a11",
        b"d-dcb833cf-8YL1NT17e9+wsA/09NqxscQI-05a1",
        b"D_dcb833cf-8YL1NT17e9+wsA/09NqxscQI-05a1",
        b"D-dcb833cf_8YL1NT17e9+wsA/09NqxscQI-05a1",
        b"D-dcb833cf-8YL1NT17e9+wsA/09NqxscQI_05a1",
    ],
)
def test_what_is_no_id_is_refused(text: bytes) -> None:
    assert not is_job_id(text)


def test_only_the_length_and_the_dashes_of_an_id_are_checked() -> None:
    assert is_job_id(b"D-????????-" + b"\xff" * 24 + b"-zzzz")


def test_creation_times_rise_strictly_within_a_millisecond(bench: Bench) -> None:
    times = [bench.number(bench.add(), b"ctime") for _ in range(50)]
    assert times == [bench.now * 1_000_000 + i for i in range(50)]


def test_creation_times_rise_when_the_clock_goes_back(bench: Bench) -> None:
    first = bench.add()
    bench.now -= 60_000
    second = bench.add()
    assert bench.number(second, b"ctime") == bench.number(first, b"ctime") + 1
    assert bench.get_all() == [first, second]
