"""Kill a loaded node with SIGKILL at random moments, restart it, and compare its state with what
its clients were told.

    python -m tools.soak_kill [--rounds 50] [--policy always|everysec|no|both] [--seed N]

The promises are in ``tests/support/soak_of_kills.py``. The exit status is 1 if one was broken.
"""

from tests.support.soak_of_kills import main

if __name__ == "__main__":
    raise SystemExit(main())
