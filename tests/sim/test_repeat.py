"""A seed determines a run to the last packet, whenever and wherever it is repeated."""

import os
import subprocess
import sys

import pytest

from tests.simulator.campaign import simulate
from tests.support import ROOT


def _digest(seed: int, membership: str, hash_seed: str) -> str:
    program = (
        "import sys\n"
        "from tests.simulator.campaign import simulate\n"
        "outcome = simulate(int(sys.argv[1]), 'safety', sys.argv[2], trace=True)\n"
        "print(outcome.trace.digest(), len(outcome.trace.lines))"
    )
    return subprocess.run(
        [sys.executable, "-c", program, str(seed), membership],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
    ).stdout


@pytest.mark.parametrize(("seed", "membership"), [(3, "static"), (11, "static"), (4, "gossip")])
def test_a_seed_gives_the_same_run_in_every_process(seed: int, membership: str) -> None:
    first = _digest(seed, membership, "1")
    assert int(first.split()[1]) > 1000
    assert first == _digest(seed, membership, "2")


def test_looking_at_a_run_does_not_change_it() -> None:
    watched = simulate(5, "safety", trace=True)
    unwatched = simulate(5, "safety")
    assert (watched.events, watched.delivered) == (unwatched.events, unwatched.delivered)


def test_another_seed_gives_another_run() -> None:
    traces = {simulate(seed, "safety", trace=True).trace.digest() for seed in range(3)}
    assert len(traces) == 3
