"""Whole clusters from seeds: nothing that was promised to a client is broken."""

import os

import pytest
from sim.engine.campaign import campaign, report
from sim.engine.plan import CALM, LIVENESS, SAFETY

SEEDS = int(os.environ.get("SIM_SEEDS", "1000"))
PROCESSES = 2
JOIN_SEEDS = 12


@pytest.mark.timeout(600)
def test_no_promise_is_broken_in_a_thousand_runs() -> None:
    failures: list[str] = []
    confirmed = again = 0
    for summary in campaign(range(SEEDS), PROCESSES):
        confirmed += summary.confirmed
        again += summary.again
        if summary.problems:
            failures.append(report(summary, "any", "any"))
    assert not failures, "\n".join([f"{len(failures)} runs failed", *failures[:10]])
    # The runs are worth something: jobs were taken, and faults made some be delivered again.
    assert confirmed > 50 * SEEDS
    assert again > SEEDS


@pytest.mark.parametrize("mode", [SAFETY, LIVENESS, CALM])
def test_no_promise_is_broken_where_nodes_find_each_other_by_gossip(mode: str) -> None:
    for summary in campaign(range(JOIN_SEEDS), 1, mode, "gossip"):
        assert not summary.problems, report(summary, mode, "gossip")
