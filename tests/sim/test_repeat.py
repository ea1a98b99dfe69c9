"""A seed determines a run to the last packet, whenever and wherever it is repeated."""

import os
import subprocess
import sys
from collections.abc import Iterable

from tests.simulator.campaign import simulate
from tests.support import ROOT

RUNS = ((3, "static"), (11, "static"), (4, "gossip"))


def _digests(runs: Iterable[tuple[int, str]], hash_seed: str) -> dict[tuple[int, str], list[str]]:
    """The checksum and the length of the traces of ``runs``, which one new process does in a
    row."""
    program = (
        "import sys\n"
        "from tests.simulator.campaign import simulate\n"
        "for word in sys.argv[1:]:\n"
        "    seed, membership = word.split('-')\n"
        "    trace = simulate(int(seed), 'safety', membership, trace=True).trace\n"
        "    print(seed, membership, trace.digest(), len(trace.lines))"
    )
    lines = subprocess.run(
        [sys.executable, "-c", program, *(f"{seed}-{membership}" for seed, membership in runs)],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    return {(int(words[0]), words[1]): words[2:] for words in map(str.split, lines)}


def test_a_seed_gives_the_same_run_in_every_process_and_after_any_other_run() -> None:
    first = _digests(RUNS, "1")
    assert len(first) == len(RUNS)
    assert all(int(length) > 1000 for _, length in first.values())
    assert first == _digests(reversed(RUNS), "2")


def test_looking_at_a_run_does_not_change_it() -> None:
    watched = simulate(5, "safety", trace=True)
    unwatched = simulate(5, "safety")
    assert (watched.events, watched.delivered) == (unwatched.events, unwatched.delivered)


def test_another_seed_gives_another_run() -> None:
    traces = {simulate(seed, "safety", trace=True).trace.digest() for seed in range(3)}
    assert len(traces) == 3
