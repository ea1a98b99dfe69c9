"""Inject random faults into a loaded cluster whose queues are longer than memory, and check that
nothing is lost.

    python -m tools.soak_paging [--rounds 10] [--faults 12] [--nodes 3] [--seed N]

The implementation is in ``tests/support/soak_of_pages.py``. The exit status is 1 if something was
lost.
"""

from tests.support.soak_of_pages import main

if __name__ == "__main__":
    raise SystemExit(main())
