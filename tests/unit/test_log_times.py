"""Durations in ranges that double."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disque_trio.log_times import grown, merge, quantile

COUNTS = st.lists(st.integers(0, 1000), max_size=31)


def test_lists_of_different_lengths_are_merged() -> None:
    assert merge([1, 2], [], [1, 0, 5]) == [2, 2, 5]
    assert merge() == []


def test_what_has_grown_has_no_zeros_at_the_end() -> None:
    assert grown([3, 1, 4], [1, 1, 4]) == [2]
    assert grown([3, 1], [3, 1]) == []


def test_after_a_restart_everything_has_grown() -> None:
    assert grown([1, 2], [5, 2]) == [1, 2]
    assert grown([1], [0, 2]) == [1]


def test_a_quantile_lies_in_its_range() -> None:
    assert quantile([], 0.5) is None
    assert quantile([0, 0], 0.5) is None
    assert quantile([4], 0.5) == 0.5
    assert quantile([0, 0, 0, 0, 2], 0.5) == 12  # two from 8 to 16 ms: half of the way
    assert quantile([1, 0, 0, 0, 0, 1], 0.99) == pytest.approx(31.68)
    assert quantile([1, 0, 0, 0, 0, 1], 0) == 0


@given(COUNTS, COUNTS)
def test_what_was_merged_can_be_taken_apart(one: list[int], two: list[int]) -> None:
    def stripped(counts: list[int]) -> list[int]:
        return grown(counts, [])

    assert grown(merge(one, two), one) == stripped(two)


@given(st.lists(st.integers(0, 10**6), min_size=1), st.sampled_from([0.5, 0.95, 0.99]))
def test_a_quantile_is_wrong_by_a_factor_of_two_at_most(values: list[int], share: float) -> None:
    counts = [0] * 31
    for value in values:
        counts[value.bit_length()] += 1
    true = sorted(values)[max(-(-int(share * 100) * len(values) // 100) - 1, 0)]
    found = quantile(counts, share)
    assert found is not None
    assert true // 2 <= found <= 2 * true + 1
