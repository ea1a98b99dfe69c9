"""The command ``disque-pipeline watch``."""

import argparse
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import fields

from disque_spark.audit.engine import Engine
from disque_spark.audit.result import Result
from disque_spark.audit.rules import TOLD, Rules
from disque_spark.cli.checks import (
    UsageError,
    addresses,
    check_directory,
    check_logs,
    check_metrics,
    check_queues,
    connection_options,
    login,
)
from disque_spark.files import location
from disque_spark.health import HealthFile
from disque_spark.options import login_of
from disque_spark.restarts import Restarts
from disque_spark.signals import Signals, Stopped
from disque_spark.terminal import TerminalProgress
from disque_spark.watch.loop import Observer, Watch
from disque_spark.watch.receivers import Lines, QueueOfNotices, Receiver, Webhook
from disque_trio.process.health import check_writable

_HEADER = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\x21-\xff][\t\x20-\xff]*)")


def check_watch(options: argparse.Namespace) -> None:
    """Check the arguments as for an audit, except that the logs need not exist yet, and that the
    receivers of findings are valid."""
    check_logs(options, now=False)
    check_metrics(options.metrics)
    if options.health_file is not None:
        check_writable(options.health_file)
    headers_of(options)
    try:
        if options.webhook is not None:
            Webhook(options.webhook)
    except ValueError as problem:
        raise UsageError(f"--{problem}") from None
    if options.webhook_header and options.webhook is None:
        raise UsageError("--webhook-header: needs --webhook")
    if options.to_queue is not None:
        check_queues([options.to_queue])
        addresses(options)
        login(options)
    if options.html is not None:
        page = location(options.html)
        if page.local is not None:
            if page.is_dir():
                raise IsADirectoryError(f"{page} is a directory")
            check_directory(page.local.parent)


def headers_of(options: argparse.Namespace) -> dict[str, str]:
    """The headers for the webhook. Raises UsageError if one is not a header."""
    headers = {}
    for text in options.webhook_header:
        found = _HEADER.fullmatch(text)
        if found is None:
            # Not its value, which may be a secret.
            raise UsageError("--webhook-header: expected 'NAME: VALUE'")
        headers[found[1]] = found[2].rstrip()
    return headers


class Told(Observer):
    """Reports what a watch does: on the terminal, in its health file, and in metrics.

    Args:
        metrics: None: no metrics.
    """

    def __init__(
        self, progress: TerminalProgress, health: HealthFile, metrics: Observer | None
    ) -> None:
        self._progress = progress
        self._health = health
        health.watching()
        self._metrics = metrics or Observer()
        self._left: dict[str, int] = {}
        self._problem: str | None = None

    def looked(self, result: Result, began: float) -> None:
        """See ``Observer``."""
        self._health.looked(result.events, sum(self._left.values()), self._problem)
        self._problem = None
        self._metrics.looked(result, began)
        self._progress.end()
        text = f"{result.events} new events, {result.serious} findings of lost or undone jobs"
        self._progress(text)

    def failed(self, error: str, seconds: float) -> None:
        """See ``Observer``."""
        self._health.restarting(error, seconds)
        self._metrics.failed(error, seconds)

    def told(self, receiver: str, problem: str | None, left: int) -> None:
        """See ``Observer``."""
        self._left[receiver] = left
        self._problem = problem or self._problem
        self._metrics.told(receiver, problem, left)


def watch(
    engine: Engine,
    options: argparse.Namespace,
    progress: TerminalProgress,
    signals: Signals,
    say: Callable[[str], None],
    health: HealthFile,
) -> None:
    """Run the watch until a signal arrives, or for ``options.looks`` looks."""
    receivers: list[Receiver] = [Lines(sys.stdout, progress.end)]
    if options.webhook is not None:
        receivers.append(Webhook(options.webhook, headers_of(options)))
    if options.to_queue is not None:
        entry = login_of(connection_options(options))
        receivers.append(QueueOfNotices(options.to_queue, addresses(options), entry))
    looking = Watch(
        paths=options.log,
        output=options.output,
        receivers=receivers,
        rules=Rules(**{rule.name: getattr(options, rule.name) for rule in fields(Rules)}),
        kinds=options.tell or TOLD,
        page=options.html,
        every=options.every,
        gone=options.without,
        keep_days=options.keep_days,
    )

    def working(text: str) -> None:
        health.working()
        progress(text)

    with _metrics(options.metrics) as metrics:
        looking.observer = Told(progress, health, metrics)
        with suppress(Stopped), signals.held(), engine.shown_by(progress):
            looking.run(
                engine,
                tell=say,
                stop=lambda: signals.stopped,
                progress=working,
                looks=options.looks,
                restarts=Restarts(options.max_restarts),
            )
    progress.end()


@contextmanager
def _metrics(place: tuple[str, int] | None) -> Iterator[Observer | None]:
    """Serve metrics at ``place`` during the block, unless it is None."""
    if place is None:
        yield None
        return
    from disque_spark.watch.metrics import serving

    with serving(*place) as metrics:
        yield metrics
