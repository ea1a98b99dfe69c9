"""Runs those commands that need no Spark session."""

import argparse
import sys
from collections.abc import Callable

from disque_spark.cli.checks import UsageError
from disque_spark.signals import Signals, Stopped
from disque_spark.terminal import TerminalProgress
from disque_trio.process.one_line import show_traceback

OK, FAILED, USAGE = 0, 1, 2
STOPPED = 128  # plus the number of the signal


def run(
    options: argparse.Namespace,
    command: Callable[[argparse.Namespace, TerminalProgress], None],
    *failures: type[Exception],
) -> int:
    """Run ``command``. Returns the exit status.

    Args:
        failures: exceptions of the command that one line tells, besides OSError and ValueError.
    """
    told: tuple[type[Exception], ...] = (*failures, OSError, ValueError)
    progress = TerminalProgress()
    signals = Signals()
    signals.catch()
    try:
        command(options, progress)
    except Stopped as stopped:
        return _ended(progress, str(stopped), STOPPED + stopped.signal)
    except UsageError as problem:
        return _ended(progress, str(problem), USAGE)
    except told as problem:
        show_traceback(options.debug)
        return _ended(progress, str(problem), FAILED)
    finally:
        signals.release()
    return OK


def _ended(progress: TerminalProgress, text: str, status: int) -> int:
    progress.end()
    print(f"disque-pipeline: {text}", file=sys.stderr)
    return status
