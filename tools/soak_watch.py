"""Inject faults into a watch of nodes that write event logs, and compare it with an audit.

    python -m tools.soak_watch [--seconds 180] [--seed N]

The implementation is in ``packages/spark/tests/support/soak_of_watches.py``. The exit status is 1
if the watch was wrong.
"""

from packages.spark.tests.support.soak_of_watches import main

if __name__ == "__main__":
    raise SystemExit(main())
