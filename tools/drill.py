"""Cause incidents of the night in real clusters: who tells of them, how soon, what cures them.

    python -m tools.drill [--incident a] [--json] [--jobs 300000] [--server PROGRAM]

The implementation is in ``tests/support/drill``. The exit status is 1 if nobody told of one in
time, or if its cure did not cure it.
"""

from tests.support.drill.run import main

if __name__ == "__main__":
    raise SystemExit(main())
