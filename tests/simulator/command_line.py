"""The command line of the simulator."""

import argparse
import gc
import os
import sys
import time
from collections.abc import Sequence

from tests.simulator.campaign import campaign, report, simulate
from tests.simulator.plan import MODES, make_plan, mode_of


def main(arguments: Sequence[str]) -> int:
    """Run what ``arguments`` ask for; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.simulate", description="Simulate clusters, one for each seed."
    )
    parser.add_argument("--seed", type=int, help="repeat one seed and show what happened")
    parser.add_argument("--full", action="store_true", help="show all, not only the failing jobs")
    parser.add_argument("--job", action="append", default=[], help="show what has this word, too")
    parser.add_argument("--seeds", type=int, default=1000, help="how many to run")
    parser.add_argument("--first", type=int, default=0, help="from which one on")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--mode", choices=("any", *MODES), default="any")
    parser.add_argument("--membership", choices=("any", "static", "gossip"), default="any")
    options = parser.parse_args(arguments)
    gc.freeze()  # what was imported stays
    if options.seed is not None:
        return _one(options)
    return _many(options)


def _one(options: argparse.Namespace) -> int:
    mode = mode_of(options.seed) if options.mode == "any" else options.mode
    print(make_plan(options.seed, mode, options.membership))
    outcome = simulate(options.seed, options.mode, options.membership, trace=True)
    words = [word for problem in outcome.problems for word in problem.words] + options.job
    for line in outcome.trace.lines if options.full else outcome.trace.about(words):
        print(line)
    for problem in outcome.problems:
        print("PROBLEM", problem.text)
    print(
        f"{outcome.jobs} jobs, {outcome.confirmed} confirmed, {outcome.delivered} delivered, "
        f"{outcome.again} deliveries again; {outcome.events} events, {outcome.virtual} s; "
        f"trace {outcome.trace.digest()[:16]}"
    )
    return 1 if outcome.problems else 0


def _many(options: argparse.Namespace) -> int:
    started = told = time.monotonic()
    failed = done = confirmed = again = 0
    seeds = range(options.first, options.first + options.seeds)
    for summary in campaign(seeds, options.jobs, options.mode, options.membership):
        done += 1
        confirmed += summary.confirmed
        again += summary.again
        if summary.problems:
            failed += 1
            print(report(summary, options.mode, options.membership), flush=True)
        if time.monotonic() - told > 30:
            told = time.monotonic()
            print(f"{done} runs, {failed} failed", file=sys.stderr, flush=True)
    took = time.monotonic() - started
    print(
        f"{done} runs in {took:.0f} s, {failed} failed; {confirmed} jobs confirmed, "
        f"{again} deliveries again"
    )
    return 1 if failed else 0
