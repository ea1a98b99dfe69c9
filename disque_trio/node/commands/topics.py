"""BIND, UNBIND, BINDINGS: which queues get the jobs of topics."""

from disque_trio.node.commands.arguments import check_topic, require_extensions
from disque_trio.node.core.bindings import Binding
from disque_trio.node.core.node import Node
from disque_trio.node.core.versions import SharedError
from disque_trio.resp.reply import OK, integer
from disque_trio.respserver.client import Client
from disque_trio.respserver.command import CommandError
from disque_trio.respserver.commands.arguments import SYNTAX


def bind(node: Node, client: Client, args: list[bytes]) -> None:
    """BIND topic queue."""
    binding = Binding(args[1], args[2])
    problem = binding.problem()
    if problem:
        raise CommandError(f"ERR {problem}")
    require_extensions(node)
    topics = node.topics
    if topics.bindings.named(binding.name) is not None and not node.commons.unsettled:
        client.out.append(OK)  # workers may repeat it each time they start
        return
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


def bindings(node: Node, client: Client, args: list[bytes]) -> None:
    """BINDINGS [QUEUE queue] [MATCH topic]: topics and queues, sorted."""
    wanted = about = None
    for at in range(1, len(args), 2):
        option = args[at].lower()
        if at + 1 == len(args):
            raise CommandError(SYNTAX)
        if option == b"queue" and wanted is None:
            wanted = args[at + 1]
        elif option == b"match" and about is None:
            about = args[at + 1]
            check_topic(about)
        else:
            raise CommandError(SYNTAX)
    known = node.topics.bindings
    found = known.all() if about is None else known.matching(about)
    pairs = sorted((one.topic, one.queue) for one in found if wanted in (None, one.queue))
    # There may be many: this takes a third of the time of ``encode``.
    two = b"*2\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n"
    entries = [two % (len(topic), topic, len(queue), queue) for topic, queue in pairs]
    client.out.append(b"*%d\r\n" % len(pairs) + b"".join(entries))
