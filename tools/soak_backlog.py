"""Let a backlog larger than memory grow in a cluster of real nodes, lose one of them for good, and
check that every job is done once.

    python -m tools.soak_backlog [--jobs 3000000] [--memory 200mb] [--server COMMAND]

The implementation is in ``tests/support/soak_of_backlogs.py``. The exit status is 1 if something
was lost or delivered twice without a reason.
"""

from tests.support.soak_of_backlogs import main

if __name__ == "__main__":
    raise SystemExit(main())
