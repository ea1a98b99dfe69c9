"""Runs a forwarder as a program: until a signal, once, or only to check."""

import argparse
import sys
import time

from disque_integrations.outbox.forwarder import Forwarder, NodesAway
from disque_integrations.outbox.options import password
from disque_integrations.outbox.sender import DisqueSender
from disque_integrations.outbox.stop import Stop, stopped_by_signals
from disque_integrations.outbox.store import Store, first_line
from disque_trio import humanize
from disque_trio.client import tracing
from disque_trio.client.urls import Cluster
from disque_trio.process.logs import Logging
from disque_trio.respclient.errors import DisqueError
from disque_trio.respclient.log import lines_go_to
from disque_trio.respclient.tls import of_arguments

FAILED, WRONG = 1, 2


def run(store: Store, options: argparse.Namespace) -> int:
    """Forward according to ``options``. Returns the exit status."""
    if options.otel and (problem := _trace()):
        print(f"disque-outbox: {problem}", file=sys.stderr)
        return FAILED
    status = WRONG
    try:
        tls = of_arguments(options, options.tls)
        cluster = Cluster.of(options.nodes, options.user, password(), tls)
        status = FAILED
        sender = DisqueSender(cluster, options.unique_for)
    except ValueError as error:
        print(f"disque-outbox: {error}", file=sys.stderr)
        return status
    try:
        if options.check:
            return _check(store, sender)
        with stopped_by_signals() as stop:
            return _forward(store, sender, options, stop)
    finally:
        sender.close()


def _forward(store: Store, sender: DisqueSender, options: argparse.Namespace, stop: Stop) -> int:
    log = Logging(options.log_level, options.log_format).log
    lines_go_to(log)
    forwarder = Forwarder(
        store, sender, log, batch=options.batch, poll=options.poll, keep=options.keep
    )
    empty = True
    failures: tuple[type[Exception], ...] = (NodesAway, *store.errors)
    try:
        if options.once:
            empty = forwarder.once(stop)
        else:
            log.notice("forwarding", nodes=" ".join(sender.nodes))
            forwarder.run(stop)
    except failures as error:
        log.warning("failed", error=first_line(error))
        return FAILED
    finally:
        counts = forwarder.counts
        log.notice("ended", forwarded=counts.sent, refused=counts.refused)
    return 0 if empty else FAILED


def _trace() -> str:
    """Set up tracing according to the environment. Returns a problem, or an empty text."""
    try:
        tracing.set_up()
    except tracing.CannotTrace as error:
        return str(error)
    return ""


def _check(store: Store, sender: DisqueSender) -> int:
    status = 0
    try:
        waiting = store.waiting()
    except store.errors as error:
        print(f"the table cannot be read: {first_line(error)}", file=sys.stderr)
        status = FAILED
    else:
        age = 0.0 if waiting.oldest is None else time.time() - waiting.oldest
        print(
            f"{humanize.counted(waiting.rows, 'row')} waiting, {waiting.refused} refused;"
            f" the oldest has waited for {humanize.duration(age)}"
        )
    finally:
        store.disconnect()
    try:
        print(f"{sender.node()} answers")
    except DisqueError as error:
        print(f"no node can be used: {error}", file=sys.stderr)
        status = FAILED
    return status
