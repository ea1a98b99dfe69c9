"""Faults of every kind on a loaded cluster of real nodes, at random; then nothing may be lost.

    python -m tools.soak_cluster [--rounds 10] [--faults 8] [--nodes 5] [--seed N]

What happens is in ``tests/support/soak_of_clusters.py``. The
exit status is 1 when something was lost.
"""

from tests.support.soak_of_clusters import main

if __name__ == "__main__":
    raise SystemExit(main())
