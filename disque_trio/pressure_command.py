"""Where the command `pressure` begins: it says what to install if its extra is not there.

Outside of `disque_trio.pressure`, which cannot be imported then.
"""

import importlib
import sys


def main() -> int:
    """Run the command; returns its exit status, 1 if the client of Redis is not installed."""
    try:
        command = importlib.import_module("disque_trio.pressure.cli")
    except ImportError as missing:
        print(f"pressure: {missing}", file=sys.stderr)
        return 1
    status: int = command.main()
    return status


if __name__ == "__main__":
    sys.exit(main())
