"""``python -m disque_trio.server`` is ``disque-server``."""

import sys

from disque_trio.server.main import main

if __name__ == "__main__":
    sys.exit(main())
