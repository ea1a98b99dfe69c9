"""Simulate whole clusters, each from one seed, and check that no promise to a client is broken.

    python tools/simulate.py [--seeds 1000] [--first 0] [--jobs 2] [--mode safety|liveness|calm]
    python tools/simulate.py --seed 17 [--full]

The first form prints the seeds that failed and the command that repeats each; the second is that
command: it shows what happened to the jobs that the failure is about. The exit status is 1 when a
run failed. The simulator is in ``tests/sim/engine``.
"""

import sys
from importlib import import_module
from pathlib import Path

if __name__ == "__main__":
    root = Path(__file__).resolve().parent.parent
    sys.path[:0] = [str(root), str(root / "tests")]
    raise SystemExit(import_module("sim.engine.command_line").main(sys.argv[1:]))
