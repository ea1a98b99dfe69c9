"""``python -m disque_trio.server`` is ``disque-server``."""

import sys

from disque_trio.node.command import main

if __name__ == "__main__":
    sys.exit(main())
