"""Runs inside a measured server: records how long its loop was busy without checking its sockets.

Python imports this module at startup because of its name, if its directory is in PYTHONPATH. It
does nothing unless WATCH_FILE names a file, which it keeps updating for ``tools.bench.stops``. This
works for every build of the node, without the node knowing.
"""

import os

_NAME = os.environ.pop("WATCH_FILE", "")  # do not pass it to children

if _NAME:
    import gc
    import mmap
    from pathlib import Path
    from time import perf_counter_ns, thread_time_ns

    import trio

    _real_run = trio.run
    with Path(_NAME).open("r+b") as _file:
        _map = mmap.mmap(_file.fileno(), 0)
    # The order in the file: see stops.FIELDS.
    _figures = memoryview(_map).cast("q")
    _collecting = [0]

    class _Watch(trio.abc.Instrument):
        """The longest time between two waits of the loop, in wall and CPU time."""

        def __init__(self) -> None:
            self._began = 0
            self._cpu = 0

        def after_io_wait(self, timeout: float) -> None:
            self._began = perf_counter_ns()
            self._cpu = thread_time_ns()

        def before_io_wait(self, timeout: float) -> None:
            if self._began:
                figures = _figures
                wall = perf_counter_ns() - self._began
                cpu = thread_time_ns() - self._cpu
                if wall > figures[0]:
                    figures[0] = wall
                if cpu > figures[1]:
                    figures[1] = cpu

    def _collected(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            _collecting[0] = thread_time_ns()
            return
        took = thread_time_ns() - _collecting[0]
        if took > _figures[2]:
            _figures[2] = took
        _figures[3] += 1
        _figures[4] += info["collected"]

    def _run(function, *args, **options):  # type: ignore[no-untyped-def]
        gc.callbacks.append(_collected)
        return _real_run(function, *args, **options, instruments=[_Watch()])

    trio.run = _run  # type: ignore[assignment]
