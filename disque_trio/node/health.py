"""What can be wrong with a node, its cluster, and the other processes of its server, besides what
any server can have (see ``respserver.health``)."""

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from disque_trio import humanize
from disque_trio.cluster.membership import Membership
from disque_trio.cluster.peers import Peers
from disque_trio.cluster.troubles import TROUBLE_MEMORY
from disque_trio.health.keeper import Fact, Recently
from disque_trio.health.table import CLOCK_OFF, DROPPED_FOR
from disque_trio.node.core.node import Node
from disque_trio.notation.addresses import format_address
from disque_trio.respserver.health import is_short
from disque_trio.respserver.memory import Memory

_NAMED = 5  # addresses in a text


class OwnFile(Protocol):
    """A small file of a node. ``problem``: why it cannot be written; empty: it can."""

    @property
    def path(self) -> str: ...

    @property
    def problem(self) -> str: ...


class Pages(Protocol):
    """The files with jobs on disk. ``problem``: why none can be written; empty: they can."""

    @property
    def problem(self) -> str: ...

    def space(self) -> tuple[int, int]:
        """How many bytes of the disk are free, and how many it has; 0 if no jobs go there."""


class Events(Protocol):
    """The event log.

    Attributes:
        problem: why it cannot be written; empty: it can.
        dropped: how many events are missing.
    """

    @property
    def problem(self) -> str: ...

    @property
    def dropped(self) -> int: ...


def memory_facts(memory: Memory, peers: Peers, copies: int) -> Iterator[Fact]:
    """Whether memory is short, here or at too many others for the ``copies`` that jobs usually
    have; that it is full is found elsewhere."""
    level = memory.level()
    if level > 1:
        return
    enough = peers.room(level == 1) >= copies - (level == 0)
    if level == 0:
        short = [each.address for each in peers.obstacles() if each.trouble & TROUBLE_MEMORY]
        if short and not enough:
            named = ", ".join(short[:_NAMED])
            yield Fact(
                "memory-refuses",
                f"memory is short on {named}: too few nodes are left for {copies} copies of a job, "
                "ADDJOB gets -NOREPL",
            )
        return
    text = (
        f"{humanize.size(memory.used)} of {humanize.size(memory.limit)} (maxmemory) are taken, "
        "more than 75%"
    )
    if enough:
        yield Fact("memory-short", f"{text}: other nodes hold new jobs")
    else:
        yield Fact(
            "memory-refuses",
            f"{text}, and too few other nodes take jobs for {copies} copies: ADDJOB gets -NOREPL",
        )


def cluster_facts(membership: Membership) -> Iterator[Fact]:
    """What is wrong with the other nodes, as far as this one sees."""
    for lost in membership.lost_nodes():
        text = f"node {lost.id[:8].decode()} at {lost.address} does not answer"
        if lost.silent:
            text += f", for {humanize.duration(lost.silent // 1000)}"
        if lost.agreed:
            text += "; most nodes agree that it is down"
        yield Fact("peer-lost", text, lost.address)
    for id, address in membership.unlinked():
        text = f"there is no connection to node {id[:8].decode()} at {address}"
        yield Fact("peer-unlinked", text, address)
    states = membership.node_states()
    size = states["ok"] + states["pfail"] + states["fail"]
    if size > 2 and 2 * states["ok"] <= size:
        yield Fact(
            "split", f"this node reaches only {states['ok']} of {size} nodes, itself included"
        )


def clock_facts(node: Node, membership: Membership, now: int) -> Iterator[Fact]:
    """Whether the clocks of other nodes differ from this one's at ``now`` (ms)."""
    off = node.clocks.ahead(now, CLOCK_OFF)
    if not off:
        return
    addresses = {peer.id: format_address(peer.ip, peer.port) for peer in membership.others()}
    for id, ahead in off:
        address = addresses.get(id, "?")
        way = "ahead of" if ahead > 0 else "behind"
        much = humanize.duration(abs(ahead) / 1000)
        text = f"the clock of node {id[:8].decode()} at {address} is {much} {way} this one's"
        yield Fact("clock", text, address)


class NodeFacts:
    """Finds what is wrong with one node.

    Args:
        files: its small files.
        silent: returns the other processes of its server that do not answer, and what they are.
    """

    def __init__(
        self,
        node: Node,
        membership: Membership,
        pages: Pages,
        events: Events,
        files: Sequence[OwnFile],
        silent: Callable[[], Sequence[tuple[int, str]]],
    ) -> None:
        self._node = node
        self._membership = membership
        self._pages = pages
        self._events = events
        self._files = files
        self._silent = silent
        self._dropped = Recently(DROPPED_FOR)

    def find(self, now: int) -> Iterator[Fact]:
        """What is wrong at ``now``, in ms."""
        node = self._node
        yield from memory_facts(node.memory, node.peers, node.replicas.usual_copies())
        yield from self._on_disk()
        waiting = len(node.progress.waiting) + node.paging.pages.number_retried()
        if waiting and not node.loading:
            text = f"{humanize.jobs(waiting)} of before the start are not in their queues yet"
            yield Fact("not-queued", text)
        if node.few_copies.count and not node.loading:
            text = f"{humanize.jobs(node.few_copies.count)} have fewer copies than they should"
            yield Fact("copies-short", text)
        if not node.loading:  # before that, it speaks with no other node
            yield from cluster_facts(self._membership)
            yield from clock_facts(node, self._membership, now)
        for file in self._files:
            if file.problem:
                text = f"{file.path} cannot be written: {file.problem}"
                yield Fact("own-file", text, file.path)
        yield from self._event_log(now)
        for number, state in self._silent():
            yield Fact("process-down", f"process {number} is {state}", str(number))

    def _on_disk(self) -> Iterator[Fact]:
        """What is wrong with the jobs that lie on disk."""
        pages = self._node.paging.pages
        if pages.off:
            return
        problem = self._pages.problem or pages.problem
        if problem:
            yield Fact("pages-write", f"jobs cannot go to disk ({problem}): they stay in memory")
        if pages.lost:
            text = f"{humanize.jobs(pages.lost)} that lay on disk could not be read"
            yield Fact("pages-lost", text)
        free, size = self._pages.space()
        if is_short(free, size):
            text = f"{humanize.size(free)} of {humanize.size(size)} are free where jobs lie on disk"
            yield Fact("disk-short", text, "page-dir")

    def _event_log(self, now: int) -> Iterator[Fact]:
        """What is wrong with the event log."""
        events = self._events
        dropped = self._dropped.grew(events.dropped, now)
        if events.problem:
            yield Fact("event-log", f"the event log cannot be written: {events.problem}")
        elif dropped:
            number = humanize.counted(events.dropped, "event")
            yield Fact("event-log", f"{number} have been dropped: the disk is too slow")
