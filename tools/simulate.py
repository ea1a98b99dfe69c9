"""Simulate whole clusters, each from a seed, and check that no promise to a client is broken.

    python -m tools.simulate [--seeds 1000] [--first 0] [--jobs 2] [--mode safety|liveness|calm]
    python -m tools.simulate --seed 17 [--full]

The first form prints the seeds that failed and the command to repeat each; the second is that
command: it shows what happened to the jobs involved in the failure. The exit status is 1 if a run
failed. The simulator is in ``tests/simulator``.
"""

import sys

from tests.simulator.command_line import main

if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
