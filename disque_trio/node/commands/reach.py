"""The jobs that a client with limited rights may act on by ID.

A request with ids is refused before it runs if the user may not take from the queue of one of the
jobs (see ``accesses``). The rest is checked when it runs:

- An id of which this node has no job may be anybody's. Only for users who may take from all queues
  is anything done about it on other nodes; for others, it counts as a job that has ended.
- Many ids are handled in slices. Meanwhile jobs arrive, and are moved to other queues: so each
  slice is checked again when its turn comes.
"""

from collections.abc import Callable

from disque_trio.node.commands.arguments import check_ids
from disque_trio.node.core.node import Node
from disque_trio.respserver.access import EVERY, NO_QUEUE, PATTERN, TAKE
from disque_trio.respserver.acl.catalog import word_of
from disque_trio.respserver.client import Client
from disque_trio.respserver.command import CommandError
from disque_trio.respserver.rights import note_refusal


def queue_of(node: Node, id: bytes) -> bytes | None:
    """The queue of the job ``id``; None: this node does not have it, or only knows that it
    ended."""
    job = node.store.jobs.get(id)
    if job is None:
        return node.paging.queue_of(id)
    return None if job.body is None else job.queue


def may_end_others(node: Node, client: Client, args: list[bytes]) -> bool:
    """Whether the command ``args`` of ``client``, which has limited rights, may end jobs that this
    node does not have."""
    return Reach(node, client, args).lets(EVERY, TAKE | PATTERN)


class Reach:
    """The jobs that the command ``args`` of ``client`` may act on."""

    def __init__(self, node: Node, client: Client, args: list[bytes]) -> None:
        self._node = node
        self._client = client
        self._word = word_of(node.command_of(args), args)

    def lets(self, name: bytes, need: int) -> bool:
        """Whether its user may do that now."""
        return self._client.user.refusal(self._word, ((name, need),)) is None

    def check(self, ids: list[bytes]) -> None:
        """Raise ``CommandError`` if one of ``ids`` is malformed, or its job is out of reach."""
        check_ids(ids)
        node = self._node
        for queue in {queue_of(node, id) for id in ids}:
            if queue is not None and not self.lets(queue, TAKE):
                note_refusal(node, self._client, "key", queue, self._client.user.name)
                raise CommandError(NO_QUEUE)

    def within(self, work: Callable[[Node, list[bytes]], int], node: Node, ids: list[bytes]) -> int:
        """Do ``work`` with those of ``ids`` that are in reach, and return its result. Raises
        ``CommandError`` if one is malformed."""
        check_ids(ids)
        queues = [queue_of(node, id) for id in ids]
        lets = {queue: self._lets_queue(queue) for queue in set(queues)}
        return work(node, [id for id, queue in zip(ids, queues, strict=True) if lets[queue]])

    def _lets_queue(self, queue: bytes | None) -> bool:
        return self.lets(EVERY, TAKE | PATTERN) if queue is None else self.lets(queue, TAKE)
