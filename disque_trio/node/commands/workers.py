"""WORKER: what worker processes report, and what they are asked to do."""

from functools import partial
from typing import Final

from disque_trio.health import deeds
from disque_trio.node.core.node import Node
from disque_trio.node.core.worker_reports import (
    HAND_BACK,
    MOST_BYTES,
    MOST_FIELDS,
    STOP,
    ReportOfWorker,
)
from disque_trio.resp.reply import OK, Value, encode, integer
from disque_trio.respserver.batches import Listing
from disque_trio.respserver.client import Client
from disque_trio.respserver.command import CommandError
from disque_trio.respserver.commands.arguments import SYNTAX, parse_integer, wrong_arity

_NAMES: Final = {b"": "", STOP: "STOP", HAND_BACK: "HANDBACK"}


def worker(node: Node, client: Client, args: list[bytes]) -> None:
    """WORKER and its subcommands."""
    word = args[1].lower()
    if word == b"report":
        _report(node, client, args[2:])
    elif word == b"list" and len(args) == 2:
        found = list(node.worker_reports.by_client.items())
        command = node.command_of(args)
        node.batches.read(Listing(client, command, found, partial(_listed, node)))
    elif word == b"stop":
        _stop(node, client, args[2:])
    else:
        raise CommandError(SYNTAX)


def _report(node: Node, client: Client, fields: list[bytes]) -> None:
    if not fields or len(fields) % 2:
        raise wrong_arity("worker report")
    if len(fields) > MOST_FIELDS or sum([len(field) for field in fields]) > MOST_BYTES:
        raise CommandError(
            f"ERR a report may have {MOST_FIELDS // 2} fields, and {MOST_BYTES} bytes"
        )
    order = node.worker_reports.take(client, fields, node.now)
    client.out.append(OK if not order else encode(_NAMES[order].encode(), client.resp))


def _stop(node: Node, client: Client, args: list[bytes]) -> None:
    """STOP: the reply is whether the process reports here, so that it will hear of it."""
    if not 1 <= len(args) <= 2 or (len(args) == 2 and args[1].lower() != b"handback"):
        raise CommandError(SYNTAX)
    order = HAND_BACK if len(args) == 2 else STOP
    found = node.worker_reports.order(parse_integer(args[0]), order)
    if found is not None:
        node.host.did(client, deeds.WORKER_STOPPED, args[0])
    client.out.append(integer(found is not None))


def _listed(node: Node, entry: tuple[Client, ReportOfWorker]) -> Value:
    client, report = entry
    return [
        client.id,
        client.name,
        max(node.now - report.at, 0),
        _NAMES[report.order].lower().encode(),
        list(report.fields),
    ]
