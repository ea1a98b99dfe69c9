"""Kill a loaded node with SIGKILL at random moments, start it again, and compare what it then has
with what its clients were told.

    python -m tools.soak_kill [--rounds 50] [--policy always|everysec|no|both] [--seed N]

What has to hold is in ``tests/support/soak_of_kills.py``. The exit status is 1 when a promise was
broken.
"""

from tests.support.soak_of_kills import main

if __name__ == "__main__":
    raise SystemExit(main())
