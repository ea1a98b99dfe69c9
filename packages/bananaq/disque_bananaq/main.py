"""``bananaq``: the entry point of the command. Its options are in ``options``.

The server is imported only after the settings were read: --help and errors in settings do not need
it.
"""

import os
import sys
from contextlib import chdir

from disque_bananaq.options import parse, settings_or_exit
from disque_bananaq.settings import BananaSettings
from disque_trio.process.imports import to_stay
from disque_trio.process.one_line import one_line, without_debug


@one_line("bananaq")
def main(argv: list[str] | None = None) -> int:
    """Run bananaq. Returns the exit status: 0, 1 if it cannot start, 2 for wrong options."""
    environ = dict(os.environ)
    arguments = without_debug(sys.argv[1:] if argv is None else argv)
    try:
        settings = settings_or_exit(arguments, environ)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1

    def load() -> BananaSettings:
        # The process has changed to its ``dir`` since it started.
        with chdir(settings.started_in):
            return parse(arguments, environ)

    with to_stay():
        from disque_bananaq.process import run
    return run(settings, load)


if __name__ == "__main__":
    sys.exit(main())
