"""Inject random faults into a loaded cluster of real nodes, and check that nothing is lost.

    python -m tools.soak_cluster [--rounds 10] [--faults 8] [--nodes 5] [--seed N]

The implementation is in ``tests/support/soak_of_clusters.py``. The exit status is 1 if something
was lost.
"""

from tests.support.soak_of_clusters import main

if __name__ == "__main__":
    raise SystemExit(main())
