"""Faults of every kind on a loaded cluster of real nodes, at random; then nothing may be lost.

    python tools/soak_cluster.py [--rounds 10] [--faults 8] [--nodes 5] [--seed N]

What happens is in ``tests/soak_of_clusters.py``. The exit status is 1 when something was lost.
"""

import sys
from importlib import import_module
from pathlib import Path

if __name__ == "__main__":
    root = Path(__file__).resolve().parent.parent
    sys.path[:0] = [str(root), str(root / "tests")]
    raise SystemExit(import_module("soak_of_clusters").main(sys.argv[1:]))
