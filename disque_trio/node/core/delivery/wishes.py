"""Gets jobs of other nodes for clients that wait by pattern, and gives jobs to those of others.

A node tells the others by which patterns its clients wait (WISH), as often as it would ask for the
jobs of one queue (see ``need_jobs``). A node with matching jobs gives some, or the next ones that
arrive, as long as its own clients do not want them. C nodes know no patterns: they are asked for
the queues that this node knows to match.
"""

from heapq import heappop, heappush
from typing import Final

from disque_trio.node.core.delivery.interest import Interest, pattern_problem
from disque_trio.node.core.delivery.lookout import knows_only_extended
from disque_trio.node.core.federation.exports import ASKED_ALL, ASKED_SOURCES, Wanted
from disque_trio.node.core.federation.federation import Federation
from disque_trio.node.core.queues.core import Core
from disque_trio.node.core.queues.need_jobs import COUNT_MAX, FIRST_MIN, Imports
from disque_trio.node.core.queues.queue import Queue
from disque_trio.node.core.rpc.questions import WISH
from disque_trio.protocol.fields import Field, FieldsError, pack_number, unpack_number

AT_ONCE: Final = 500  # patterns in a packet, or per turn
MOST_NAMES: Final = 100  # for all patterns together

# Types of fields. Those of a pattern follow it.
_PATTERN: Final = 2
_JOBS: Final = 3
_TIME: Final = 4  # ms for which they are valid
_WAITS: Final = 5  # empty: a client waits


class Wishes:
    """The patterns that a node's clients want from other nodes, and other nodes from it.

    Args:
        federation: knows whether other nodes can be asked.
    """

    def __init__(self, core: Core, federation: Federation) -> None:
        self._machine = core.machine
        self._federation = federation
        self._exports = federation.exports
        self._queues = core.store.queues
        self._questions = core.questions
        self._peers = core.peers
        self._dues: list[tuple[int, int, Interest]] = []  # heap: when to ask again for which

    # ---- asking -----------------------------------------------------------------------------

    def ask(self, interests: list[Interest], soon: int) -> None:
        """Tell other nodes that clients want jobs by ``interests``, as often as the pacing allows,
        and repeat it while they wait. ``soon``: see ``Imports.ask_all``."""
        if not self._federation.may_ask():
            return  # ``ask_again`` is called when it may
        now = self._machine.now
        all: list[tuple[Interest, int]] = []
        some: dict[bytes, list[tuple[Interest, int]]] = {}
        for interest in interests:
            imports = interest.imports
            if imports is None:
                imports = interest.imports = Imports()
            if soon:
                imports.want(now)
            if imports.ask_all(now, soon):
                all.append((interest, 1))
            count = min(imports.ask_sources(now, soon == FIRST_MIN), COUNT_MAX)
            if count:
                for id in imports.sources:
                    some.setdefault(id, []).append((interest, count))
            self._plan(interest, max(imports.next_question(), now + 1))
        if all:
            self._tell(self._peers.everyone(), all, ASKED_ALL)
            if not knows_only_extended(self._peers):
                self._ask_by_names(all)
        for id, wanted in some.items():
            self._tell([id], wanted, ASKED_SOURCES)

    def _plan(self, interest: Interest, due: int) -> None:
        if interest.asks_at == 0 or due < interest.asks_at:
            interest.asks_at = due
            heappush(self._dues, (due, interest.number, interest))

    def _tell(self, nodes: list[bytes], wanted: list[tuple[Interest, int]], time: int) -> None:
        """Tell ``nodes`` how many jobs of which patterns are ``wanted`` during ``time`` ms."""
        nodes = [id for id in nodes if self._peers.understands(id)]
        for at in range(0, len(wanted) if nodes else 0, AT_ONCE):
            fields: list[Field] = [(_TIME, pack_number(time))]
            for interest, count in wanted[at : at + AT_ONCE]:
                fields += [(_PATTERN, interest.pattern), (_JOBS, pack_number(count))]
                if interest.clients:
                    fields.append((_WAITS, b""))
            packet = self._questions.news(WISH, fields)
            for id in nodes:
                self._peers.send(id, packet)

    def _ask_by_names(self, wanted: list[tuple[Interest, int]]) -> None:
        """Ask for jobs of the queues that are known to match."""
        left = MOST_NAMES
        for interest, _ in wanted:
            for name in interest.emptied:
                queue = self._queues.by_name.get(name)
                if left and queue is not None and not queue.deliverable():
                    left -= 1
                    self._federation.need_jobs(queue)

    @property
    def due(self) -> int:
        """Return when ``go_on`` next has something to do, in ms; 0: never."""
        return self._dues[0][0] if self._dues else 0

    def go_on(self, now: int) -> None:
        """Repeat the requests that are due."""
        interests: list[Interest] = []
        while self._dues and self._dues[0][0] <= now and len(interests) < AT_ONCE:
            due, _, interest = heappop(self._dues)
            if interest.asks_at == due:
                interest.asks_at = 0
                if interest.clients:
                    interests.append(interest)
        if interests:
            self.ask(interests, 0)

    # ---- giving -----------------------------------------------------------------------------

    def grant(self, queue: Queue, interests: list[Interest]) -> None:
        """Give jobs of ``queue``, for which no client waits, to nodes that want some by
        ``interests``."""
        now = self._machine.now
        wanting = [(one, id, wish) for one in interests for id, wish in one.wishes.items()]
        # Nodes whose clients wait come first, as in ``Exports.offer``.
        wanting.sort(key=_polls)
        for interest, id, wish in wanting:
            if wish.until <= now:
                del interest.wishes[id]
                continue
            if id not in self._peers.reachable or not self._peers.linked(id):
                continue  # it may come back
            if not wish.time and queue.imports is not None and queue.imports.rate(now):
                continue  # what other nodes gave would go back and forth
            # The same number from each queue.
            share = max(wish.jobs // max(len(interest.found), 1), 1)
            given = self._exports.give(id, queue, share, wish)
            if given:
                del interest.wishes[id]
                if wish.jobs > given:  # after the other nodes; who waits for more says so again
                    time = 0 if self._exports.has_limit(queue) else wish.time
                    interest.wishes[id] = Wanted(wish.jobs - given, time, wish.until, False)
            elif not queue.deliverable():
                return

    def flush(self) -> None:
        """Forget all planned requests."""
        self._dues.clear()


def _polls(wanting: tuple[Interest, bytes, Wanted]) -> bool:
    """Whether no client of the node waits."""
    return not wanting[2].waits


def read_wishes(fields: list[Field]) -> tuple[int, dict[bytes, int], set[bytes]]:
    """For how many ms which patterns are wanted, and how many jobs of each; and by which of them
    clients wait. Raises ``FieldsError``."""
    time = 0
    wanted: dict[bytes, int] = {}
    waiting: set[bytes] = set()
    pattern = b""
    for type, value in fields:
        if type == _TIME:
            time = min(unpack_number(value), ASKED_ALL)
        elif type == _PATTERN:
            if pattern_problem(value):
                raise FieldsError("not a pattern")
            pattern = value
        elif type == _JOBS and pattern:
            wanted[pattern] = min(unpack_number(value), COUNT_MAX)
        elif type == _WAITS and pattern:
            waiting.add(pattern)
    return time, wanted, waiting
