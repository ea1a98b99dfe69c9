"""Inject faults into a cluster that writes event logs, and compare the audit with the clients.

    python -m tools.soak_audit [--rounds 5] [--faults 6] [--nodes 3] [--seed N]

The implementation is in ``packages/spark/tests/support/soak_of_audits.py``. The exit status is 1 if
the audit was wrong.
"""

from packages.spark.tests.support.soak_of_audits import main

if __name__ == "__main__":
    raise SystemExit(main())
