"""Makes the clock of a process wrong by ``WRONG_CLOCK_MS``, or by what the file
``WRONG_CLOCK_FILE`` says when it starts. Python imports this at startup if its
directory is in ``PYTHONPATH``."""

import os
import time

_wrong = int(os.environ.get("WRONG_CLOCK_MS", "0"))
if _file := os.environ.get("WRONG_CLOCK_FILE"):
    with open(_file, encoding="ascii") as _told:
        _wrong = int(_told.read())
_time = time.time
_time_ns = time.time_ns

time.time = lambda: _time() + _wrong / 1000
time.time_ns = lambda: _time_ns() + _wrong * 1_000_000
