"""QSET, QGET, QDEL: the policies of queues."""

from disque_trio.health import deeds
from disque_trio.node.commands.arguments import require_extensions
from disque_trio.node.core.node import Node
from disque_trio.node.core.shared.bindings import TOPIC
from disque_trio.node.core.shared.policies import NO_POLICY, Policy
from disque_trio.node.core.shared.policy_words import describe, set_options
from disque_trio.node.core.shared.versions import MAX_NAME, SharedError
from disque_trio.resp.reply import encode, integer, null_array
from disque_trio.respserver.batches import Listing
from disque_trio.respserver.client import Client
from disque_trio.respserver.command import CommandError
from disque_trio.respserver.commands.arguments import wrong_arity


def qset(node: Node, client: Client, args: list[bytes]) -> None:
    """QSET queue option value ...: change options of the policy of a queue or a pattern; the
    others stay."""
    name = args[1]
    if not 0 < len(name) <= MAX_NAME:
        raise CommandError(f"ERR the name of a policy must have 1 to {MAX_NAME} bytes")
    old = node.policies.named(name)
    policy = Policy(name) if old is None else old.copy()
    if old is None:
        node.budgets.admit_policy(client.user)
    try:
        set_options(policy, args[2:])
        if policy.dead.startswith(TOPIC) and (old is None or policy.dead != old.dead):
            raise CommandError("ERR DEAD must be a queue, and @ begins a topic")
        if policy.needs_extensions():
            require_extensions(node)
        node.policy_sharing.set(client, name, policy)
    except SharedError as problem:
        raise CommandError(f"ERR {problem}") from problem
    node.host.did(client, deeds.POLICY_SET, name)
    node.notes.note_policy(client, name, b" ".join([b"QSET", *args[2:]]))


def qget(node: Node, client: Client, args: list[bytes]) -> None:
    """QGET [queue]: the policy that applies to a queue, or all of them."""
    if len(args) == 1:
        command = node.command_of(args)
        node.batches.read(Listing(client, command, node.policies.all(), describe))
        return
    if len(args) > 2:
        raise wrong_arity("qget")
    policy = node.policies.of(args[1])
    as_set = node.policies.as_set(args[1])
    if policy.attempts and not as_set.dead:
        policy = as_set  # without the name that follows from it
    if policy is NO_POLICY:
        client.out.append(null_array(client.resp))
    else:
        client.out.append(encode(describe(policy), client.resp))


def qdel(node: Node, client: Client, args: list[bytes]) -> None:
    """QDEL queue: delete the policy of exactly this name; returns how many there were."""
    try:
        if not node.policy_sharing.delete(client, args[1]):
            client.out.append(integer(0))
            return
    except SharedError as problem:
        raise CommandError(f"ERR {problem}") from problem
    node.host.did(client, deeds.POLICY_DELETED, args[1])
    node.notes.note_policy(client, args[1], b"QDEL")
