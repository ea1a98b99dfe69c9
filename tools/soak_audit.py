"""Let faults happen to a cluster that writes event logs, and compare the audit with its clients.

    python tools/soak_audit.py [--rounds 5] [--faults 6] [--nodes 3] [--seed N]

What happens is in ``tests/soak_of_audits.py``. The exit status is 1 when the audit was wrong.
"""

import sys
from importlib import import_module
from pathlib import Path

if __name__ == "__main__":
    root = Path(__file__).resolve().parent.parent
    sys.path[:0] = [str(root), str(root / "tests")]
    raise SystemExit(import_module("soak_of_audits").main(sys.argv[1:]))
