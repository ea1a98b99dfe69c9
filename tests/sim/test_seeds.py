"""Whole clusters from seeds: no promise to a client is broken."""

import os

import pytest

from tests.simulator.campaign import campaign, report, simulate
from tests.simulator.plan import CALM, LIVENESS, SAFETY, TIMELY
from tests.simulator.spoiled import only_stops

SEEDS = int(os.environ.get("SIM_SEEDS", "1000"))
BLOCK = 20  # seeds per test, so that test processes share the work evenly
JOIN_SEEDS = 12
TIMELY_SHARE = 50  # of so many seeds, one more is run in timely mode


@pytest.mark.parametrize("first", range(0, SEEDS, BLOCK))
def test_no_promise_is_broken_in_a_thousand_runs(first: int) -> None:
    seeds = range(first, min(first + BLOCK, SEEDS))
    failures: list[str] = []
    confirmed = again = 0
    for summary in campaign(seeds, 1):
        confirmed += summary.confirmed
        again += summary.again
        if summary.problems:
            failures.append(report(summary, "any", "any"))
    assert not failures, "\n".join([f"{len(failures)} runs failed", *failures[:10]])
    # The runs were worth something: jobs were added, and faults caused redeliveries.
    assert confirmed > 50 * len(seeds)
    assert again > len(seeds)


@pytest.mark.parametrize("mode", [SAFETY, LIVENESS, CALM])
@pytest.mark.slow
def test_no_promise_is_broken_where_nodes_find_each_other_by_gossip(mode: str) -> None:
    for summary in campaign(range(JOIN_SEEDS), 1, mode, "gossip"):
        assert not summary.problems, report(summary, mode, "gossip")


def test_a_healthy_cluster_delivers_in_time_and_not_too_often() -> None:
    confirmed = 0
    for summary in campaign(range(max(SEEDS // TIMELY_SHARE, 1)), 1, TIMELY, "static"):
        assert not summary.problems, report(summary, TIMELY, "static")
        confirmed += summary.confirmed
    assert confirmed > 0


@pytest.mark.parametrize("seed", [1, 5, 8, 10])
@pytest.mark.slow
def test_clean_stops_lose_no_job_that_is_delivered_at_most_once(seed: int) -> None:
    assert simulate(seed, TIMELY, "static", spoil=only_stops).problems == []


@pytest.mark.parametrize("seed", [9185, 9200])
def test_a_copy_that_was_on_its_way_for_long_does_not_outlive_its_job(seed: int) -> None:
    assert simulate(seed, LIVENESS).problems == []
