"""BIND, UNBIND, BINDINGS: which queues get the jobs of topics."""

from collections.abc import Callable
from functools import partial
from typing import Final

from disque_trio.node.commands.arguments import check_topic, require_extensions
from disque_trio.node.core.node import Node
from disque_trio.node.core.shared.bindings import Binding
from disque_trio.node.core.shared.makers import maker_of
from disque_trio.node.core.shared.versions import SharedError
from disque_trio.resp.reply import OK, Value, integer
from disque_trio.respserver.batches import Listing
from disque_trio.respserver.client import Client
from disque_trio.respserver.command import CommandError


def bind(node: Node, client: Client, args: list[bytes]) -> None:
    """BIND topic queue."""
    binding = Binding(args[1], args[2])
    binding.user = maker_of(client)
    problem = binding.problem()
    if problem:
        raise CommandError(f"ERR {problem}")
    require_extensions(node)
    topics = node.topics
    old = topics.bindings.named(binding.name)
    if old is not None and topics.makers.allows(old):
        if not node.shared_maps.unsettled:
            client.out.append(OK)  # workers may repeat it each time they start
            return
        binding.user = old.user
    if old is None:
        node.budgets.admit_binding(client.user)
    try:
        topics.sharing.set(client, binding.name, binding)
    except SharedError as full:
        raise CommandError(f"ERR {full}") from full


def unbind(node: Node, client: Client, args: list[bytes]) -> None:
    """UNBIND topic queue; returns how many bindings there were."""
    try:
        if not node.topics.sharing.delete(client, Binding(args[1], args[2]).name):
            client.out.append(integer(0))
    except SharedError as problem:
        raise CommandError(f"ERR {problem}") from problem


def _topic(word: bytes) -> int:
    check_topic(word)
    return 0


BINDINGS: Final = {"MATCH": _topic}


def bindings(node: Node, client: Client, args: list[bytes]) -> None:
    """BINDINGS: topics and queues, sorted."""
    words = node.read(args)
    wanted = words.text("QUEUE") if words.has("QUEUE") else None
    known = node.topics.bindings
    found = known.matching(words.text("MATCH")) if words.has("MATCH") else known.all()
    found = [one for one in found if wanted in (None, one.queue)]
    found.sort(key=lambda one: (one.topic, one.queue))
    describe: Callable[[Binding], Value] = partial(_describe, node) if words.has("FULL") else _pair
    node.batches.read(Listing(client, node.command_of(args), found, describe))


def _pair(binding: Binding) -> Value:
    return [binding.topic, binding.queue]


def _describe(node: Node, binding: Binding) -> Value:
    """What BINDINGS FULL says of ``binding``."""
    fields: dict[bytes, Value] = {b"topic": binding.topic, b"queue": binding.queue}
    if binding.user:
        fields[b"user"] = binding.user
        problem = node.topics.makers.problem(binding)
        if problem:
            fields[b"problem"] = problem.encode()
    return fields
