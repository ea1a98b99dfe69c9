"""Limits of the groups in a queue: how many jobs of each are in hand at once, and are delivered per
second (GROUPACTIVE, GROUPRATE).

They apply to the whole cluster, and are divided among the nodes as those of queues are (see
``limits``): among those that have jobs of the group for clients that want some. A group is looked
at when its turn comes. If its limit allows no job now, it leaves the turns, so that it holds up no
other group, and comes back when that has changed.

What is known of a group is kept while its jobs are in hand, while its rate has a memory, and for a
moment in which more jobs may come. A node asks the others about a hundred groups at once, and again
only about those that others use, too.
"""

from collections.abc import Iterator
from functools import partial
from heapq import heappop, heappush
from typing import Final

from disque_trio.node.core.jobs.job import FLAG_IN_HAND, Job
from disque_trio.node.core.jobs.replicas import Replicas
from disque_trio.node.core.jobs.trailers import Trailers
from disque_trio.node.core.queues.grouping import Grouping
from disque_trio.node.core.queues.queue import Queue
from disque_trio.node.core.queues.queues import Queues
from disque_trio.node.core.queues.shares import (
    ANSWER_TIME,
    LINK_LOOK,
    REFRESH,
    SPARED,
    VALID,
    WANTED,
    Limit,
)
from disque_trio.node.core.rpc.calls import GROUP_LIMITS, Question
from disque_trio.node.core.rpc.services import Services
from disque_trio.node.core.shared.policies import Policies, Policy
from disque_trio.protocol.bus import MAX_NAME_IN_FIELDS
from disque_trio.protocol.fields import Field, pack_number, unpack_number

# What is known of a group costs this much in addition to its name, in bytes.
GROUP_LIMIT_OVERHEAD: Final = 700

_PASSED: Final = 1_000  # groups to pass over before others have their turn
_NEW: Final = 16  # of these, groups to ask other nodes about
_IN_PACKET: Final = 100  # groups
_SLICE: Final = 500  # groups to look at per turn

# Types of fields. Those of a group follow it, and groups follow their queue.
_QUEUE: Final = 2
_GROUP: Final = 3
_WANTS: Final = 4  # 1: the sender wants jobs
_IN_HAND: Final = 5  # jobs
_DEBT: Final = 6  # ms until the sender's bucket is full


class LimitedGroup(Limit):
    """One node's view of the use of a group.

    Attributes:
        group: its name; ``name`` is that of its queue.
    """

    def __init__(self, name: bytes, group: bytes) -> None:
        super().__init__(name)
        self.group = group


class LimitedGroups:
    """Keeps the groups of one node within their limits.

    Args:
        policies: of the queues.
        queues: the queues. grouping: their groups.
        trailers: tell a job's group.
        replicas: has this node's id.

    Attributes:
        in_use: the limits by queue and group.
        due: when ``go_on`` next has something to do, in ms; 0: never.
    """

    def __init__(
        self,
        services: Services,
        policies: Policies,
        queues: Queues,
        grouping: Grouping,
        trailers: Trailers,
        replicas: Replicas,
    ) -> None:
        self.in_use: dict[tuple[bytes, bytes], LimitedGroup] = {}
        self.due = 0
        self._machine = services.machine
        self._policies = policies
        self._queues = queues
        self._grouping = grouping
        self._trailers = trailers
        self._replicas = replicas
        self._peers = services.peers
        self._rpc = services.rpc
        self._by_job: dict[bytes, LimitedGroup] = {}  # that are in hand
        self._to_ask: dict[LimitedGroup, None] = {}
        self._asked: dict[LimitedGroup, None] = {}  # whose answers have not all come
        self._to_tell: dict[LimitedGroup, None] = {}
        self._soon: dict[bytes, None] = {}  # queues with more groups to look at
        self._wakes: list[tuple[int, bytes, bytes]] = []  # heap: when to look at which group
        self._looks: list[LimitedGroup] = []  # still to be looked at
        self._look_at = 0  # when to look at all, in ms
        self._ask_at = 0  # not before, in ms
        self._missed = 0  # since when a node that should be there has had no connection, in ms
        services.rpc.handlers[GROUP_LIMITS] = self._answer

    def _call(self, due: int) -> None:
        """Have ``go_on`` called by ``due`` (ms)."""
        if self.due == 0 or due < self.due:
            self.due = due
            self._rpc.timer.wake_by(due)

    def _limits_of(self, queue: bytes) -> Policy:
        """The limits of each group of ``queue``, as those of a queue."""
        return self._policies.of(queue).of_groups()

    # ---- delivering -------------------------------------------------------------------------

    def admit(self, queue: Queue) -> bool:
        """Whether a job of ``queue``, which has some, may be delivered now. Groups of which none
        may be leave the turns until one may."""
        limits = self._limits_of(queue.name)
        groups = self._grouping.groups.get(queue.name)
        if groups is None or not queue.grouped or not limits.is_limited():
            return True
        asked = len(self._to_ask)
        for _ in range(_PASSED):
            if not queue.deliverable():
                return False
            group = groups.first()
            if group is None or len(queue.name) > MAX_NAME_IN_FIELDS:
                return True
            if self._allows(self._use(queue.name, group.jobs.name), limits):
                return True
            groups.hold_back(group)
            if len(self._to_ask) - asked >= _NEW:
                return False  # it is looked at again when they have answered
        self._soon[queue.name] = None
        self._call(self._machine.now)
        return False

    def _use(self, name: bytes, group: bytes) -> LimitedGroup:
        limit = self.in_use.get((name, group))
        if limit is None:
            limit = self.in_use[name, group] = LimitedGroup(name, group)
            self._machine.memory.used += GROUP_LIMIT_OVERHEAD + len(group)
            if not self._look_at:
                self._look_at = self._machine.now + REFRESH
                self._call(self._look_at)
        return limit

    def _allows(self, limit: LimitedGroup, limits: Policy) -> bool:
        """Whether a job of the group of ``limit``, which a client wants, may be delivered now. If
        not, ``_let_on`` is called as soon as one may."""
        now = self._machine.now
        limit.wanted = now
        if limit.joined <= now:
            limit.joined = 0
            self._ask(limit)
            if not limit.joined:
                return False
        if self._is_used_up(limit, limits):
            self._tell_lack(limit)
            return False
        due = limit.rate_due(limits, self._machine.now)
        if due:
            self._wake_at(limit, due)
        return not due

    def _is_used_up(self, limit: LimitedGroup, limits: Policy) -> bool:
        return limit.is_used_up(self._replicas.own, limits.active)

    def delivered(self, job: Job) -> None:
        """Count ``job``, which was given to a client."""
        limits = self._limits_of(job.queue)
        limit = self.in_use.get((job.queue, self._trailers.group(job)))
        if limit is None or not limits.is_limited():
            return
        now = self._machine.now
        limit.used = now
        limit.count(limits, now)
        if limits.active and job.retry:
            self._take(limit, job)
        if limit.users and not self._has_jobs(limit):
            self._tell_soon(limit)

    def _take(self, limit: LimitedGroup, job: Job) -> None:
        job.flags |= FLAG_IN_HAND
        limit.in_hand[job.id] = None
        self._by_job[job.id] = limit

    def resume(self, job: Job) -> None:
        """Count ``job``, which a client got before this node started, as in its hands."""
        if self._limits_of(job.queue).active and len(job.queue) <= MAX_NAME_IN_FIELDS:
            self._take(self._use(job.queue, self._trailers.group(job)), job)

    def taken_back(self, job: Job) -> None:
        """Note that ``job`` has left its client's hands."""
        limit = self._by_job.pop(job.id, None)
        if limit is not None:
            limit.in_hand.pop(job.id, None)
            limit.used = self._machine.now
            if limit.users:
                self._tell_soon(limit)
            self._serve(limit)

    # ---- groups that wait -------------------------------------------------------------------

    def _has_jobs(self, limit: LimitedGroup) -> bool:
        groups = self._grouping.groups.get(limit.name)
        group = None if groups is None else groups.by_name.get(limit.group)
        return group is not None and group.jobs.length > 0

    def _is_held_back(self, limit: LimitedGroup) -> bool:
        groups = self._grouping.groups.get(limit.name)
        group = None if groups is None else groups.by_name.get(limit.group)
        return group is not None and group.held_back

    def _let_on(self, limit: LimitedGroup) -> None:
        """Let the group of ``limit`` have its turns again."""
        groups = self._grouping.groups.get(limit.name)
        queue = self._queues.by_name.get(limit.name)
        if groups is not None and groups.let_on(limit.group) and queue is not None:
            self._queues.look_at(queue)

    def _serve(self, limit: LimitedGroup) -> None:
        """Let the group of ``limit`` on if it may have a job now, and plan to leave what it does
        not use to other nodes."""
        limits = self._limits_of(limit.name)
        if (
            self._is_held_back(limit)
            and not self._is_asking(limit)
            and not self._is_used_up(limit, limits)
        ):
            due = limit.rate_due(limits, self._machine.now)
            if due:
                self._wake_at(limit, due)
            else:
                self._let_on(limit)
        if limit.spare == 0 and self._can_spare(limit, limits):
            limit.spare = max(limit.used + SPARED, self._machine.now)
            self._plan(limit, limit.spare)

    def is_asking(self, names: list[bytes]) -> bool:
        """Whether other nodes are being asked about groups of one of the queues ``names``."""
        return any(
            limit.name in names for limits in (self._to_ask, self._asked) for limit in limits
        )

    # ---- time -------------------------------------------------------------------------------

    def _wake_at(self, limit: LimitedGroup, time: int) -> None:
        if limit.wake == 0 or time < limit.wake:
            limit.wake = time
            self._plan(limit, time)

    def _plan(self, limit: LimitedGroup, time: int) -> None:
        heappush(self._wakes, (time, limit.name, limit.group))
        self._call(time)

    def go_on(self, now: int) -> None:
        """Do what is due at ``now``."""
        if not self.due or self.due > now:
            return
        for name in self._soon:
            queue = self._queues.by_name.get(name)
            if queue is not None:
                self._queues.look_at(queue)
        self._soon.clear()
        for _ in range(_SLICE):
            if not self._wakes or self._wakes[0][0] > now:
                break
            _, name, group = heappop(self._wakes)
            limit = self.in_use.get((name, group))
            if limit is not None:
                self._wake(limit, now)
        if self._look_at and self._look_at <= now and not self._looks:
            self._looks = list(self.in_use.values())
            self._look_at = now + REFRESH if self._looks else 0
        for _ in range(min(_SLICE, len(self._looks))):
            self._look(self._looks.pop(), now)
        if self._to_ask and self._ask_at <= now:
            self._send_questions()
        if self._to_tell:
            self._send_news()
        self.due = 0
        if self._looks:
            self._call(now)
        if self._to_ask:
            self._call(max(self._ask_at, now))
        if self._look_at:
            self._call(self._look_at)
        if self._wakes:
            self._call(max(self._wakes[0][0], now))

    def _wake(self, limit: LimitedGroup, now: int) -> None:
        """Do what was planned for ``limit``."""
        if limit.wake and limit.wake <= now:
            limit.wake = 0
            self._let_on(limit)
        if limit.spare and limit.spare <= now:
            limit.spare = 0
            if self._can_spare(limit, self._limits_of(limit.name)):
                if limit.used + SPARED > now:
                    limit.spare = limit.used + SPARED
                    self._plan(limit, limit.spare)
                else:
                    limit.wanted = now - WANTED
                    self._tell_soon(limit)

    def _look(self, limit: LimitedGroup, now: int) -> None:
        """Find out what has changed by itself, and forget ``limit`` if it is not used any more."""
        if self.in_use.get((limit.name, limit.group)) is not limit:
            return
        limit.forget_silent(now)
        limits = self._limits_of(limit.name)
        if limits.rate:  # no more debt than one job by this rate, whatever it was before
            limit.full = min(limit.full, now + limit.most_debt(limits))
        else:
            limit.full = 0.0
        asked = self._is_asking(limit)
        if self._is_held_back(limit) and limit.rate_due(limits, self._machine.now) <= now + VALID:
            queue = self._queues.by_name.get(limit.name)
            if queue is not None and queue.waiters:
                limit.wanted = now
            if not asked and (not self._wants(limit) or limit.joined <= now):
                self._let_on(limit)  # who wants a job asks the others again
            else:
                self._serve(limit)
        wants = self._wants(limit)
        if limit.users and (wants or limit.in_hand):
            self._ask(limit)
        elif not (wants or limit.in_hand or limit.full > now or limit.joined > now or asked):
            del self.in_use[limit.name, limit.group]
            self._machine.memory.used -= GROUP_LIMIT_OVERHEAD + len(limit.group)

    def set_back(self, back: int) -> None:
        """Move all times ``back`` as far as the clock was set back (ms)."""
        for limit in self.in_use.values():
            limit.set_back(back)
            limit.wake = 0
            self._let_on(limit)
        self._wakes.clear()
        self._ask_at = self._missed = 0
        self.look_soon()

    def look_soon(self) -> None:
        """Look at all groups in use: policies have changed."""
        if self.in_use:
            self._looks = []
            self._look_at = self._machine.now
            self._call(self._look_at)

    # ---- the other nodes --------------------------------------------------------------------

    def _others(self) -> list[bytes]:
        """The other nodes that keep groups within limits."""
        peers = self._peers
        return [id for id in peers.everyone() if peers.limits_groups(id)]

    def _wants(self, limit: LimitedGroup) -> bool:
        """Whether clients of this node want jobs of the group that are here. If not, it has to ask
        before they get some again."""
        wants = self._machine.now - limit.wanted < WANTED and self._has_jobs(limit)
        if not wants:
            limit.asks_to_join = False
            if limit.users:
                limit.joined = 0
        return wants

    def _is_asking(self, limit: LimitedGroup) -> bool:
        """Whether other nodes are being asked about the group."""
        return limit in self._to_ask or limit in self._asked

    def _can_spare(self, limit: LimitedGroup, limits: Policy) -> bool:
        """Whether this node has room that others may want. A part of a rate is not spared."""
        if not limits.active or limits.rate or limit.joined <= self._machine.now:
            return False
        lacking = limit.lacking(self._replicas.own, limits.active)
        return len(lacking) > 0 and not self._is_used_up(limit, limits)

    def _ask(self, limit: LimitedGroup) -> None:
        """Tell the other nodes how this one uses the group of ``limit``, and ask how they do, at
        the end of the turn."""
        if self._is_asking(limit):
            return
        if not self._others():
            limit.joined = self._machine.now + VALID
            return
        self._to_ask[limit] = None
        self._call(self._machine.now)

    def _send_questions(self) -> None:
        now = self._machine.now
        if self._awaits_connections():
            self._ask_at = now + LINK_LOOK
            return
        waiting = list(self._to_ask)
        self._to_ask.clear()
        others = self._others()
        for at in range(0, len(waiting), _IN_PACKET):
            limits = waiting[at : at + _IN_PACKET]
            for limit in limits:
                limit.asked = now
                limit.asks_to_join = self._wants(limit)
                self._asked[limit] = None
                self._to_tell.pop(limit, None)
            on_answer = partial(self._on_answer, limits)
            fields = self._tell(limits)
            question = self._rpc.call(GROUP_LIMITS, fields, others, ANSWER_TIME, on_answer)
            if question.over:
                self._all_answered(limits)

    def _awaits_connections(self) -> bool:
        """Whether to wait for the connection to a missing node (see ``limits``)."""
        peers, now = self._peers, self._machine.now
        for id in peers.reachable:
            if peers.limits_groups(id) and not peers.linked(id):
                self._missed = self._missed or now
                return now - self._missed < ANSWER_TIME
        self._missed = 0
        return False

    def _tell(self, limits: list[LimitedGroup]) -> list[Field]:
        """The fields that tell other nodes how this one uses the groups of ``limits``."""
        now = self._machine.now
        fields: list[Field] = []
        name: bytes | None = None
        for limit in limits:
            if limit.name != name:
                name = limit.name
                fields.append((_QUEUE, name))
            limit.told = len(limit.in_hand)
            fields += [
                (_GROUP, limit.group),
                (_WANTS, pack_number(1 if self._wants(limit) else 0)),
                (_IN_HAND, pack_number(limit.told)),
                (_DEBT, pack_number(limit.debt(now))),
            ]
        return fields

    def _tell_lack(self, limit: LimitedGroup) -> None:
        """Let other nodes know that this one has used up its share, so that they leave it room."""
        if limit.told < len(limit.in_hand) and limit.sharers() > 1:
            self._tell_soon(limit)

    def _tell_soon(self, limit: LimitedGroup) -> None:
        """Tell the other nodes how this one uses the group of ``limit``, at the end of the turn."""
        self._to_tell[limit] = None
        self._call(self._machine.now)

    def _send_news(self) -> None:
        waiting = list(self._to_tell)
        self._to_tell.clear()
        for at in range(0, len(waiting), _IN_PACKET):
            fields = self._tell(waiting[at : at + _IN_PACKET])
            packet = self._rpc.notification(GROUP_LIMITS, fields)
            for id in self._others():
                self._peers.send(id, packet)

    def _learn(self, sender: bytes, fields: list[Field]) -> Iterator[tuple[LimitedGroup, int]]:
        """Note how the node ``sender`` uses groups; return those that are in use here, and the
        debts of the sender. Raises ``FieldsError``."""
        now = self._machine.now
        name = b""
        limit: LimitedGroup | None = None
        wants = False
        in_hand = 0
        for type, value in fields:
            if type == _QUEUE:
                name = value
            elif type == _GROUP:
                limit = self.in_use.get((name, value))
            elif type == _WANTS:
                wants = unpack_number(value) != 0
            elif type == _IN_HAND:
                in_hand = unpack_number(value)
            elif type == _DEBT and limit is not None:
                limit.heard(sender, wants, in_hand, now)
                yield limit, unpack_number(value)

    def _on_answer(self, asked: list[LimitedGroup], question: Question) -> None:
        """Handle the answers of other nodes about the groups ``asked``."""
        now = self._machine.now
        while question.answers:
            sender, fields = question.answers.popitem()
            for limit, debt in self._learn(sender, fields):
                limits = self._limits_of(limit.name)
                if limit.joined <= now and limits.rate:
                    limit.owe(debt, limits, now)
        if question.over:
            self._all_answered(asked)

    def _all_answered(self, asked: list[LimitedGroup]) -> None:
        """Note that all reachable nodes know how this one uses the groups ``asked``."""
        for limit in asked:
            if limit in self._asked:
                del self._asked[limit]
                limit.joined = limit.asked + VALID if limit.asks_to_join else 0
                self._serve(limit)

    def _answer(self, sender: bytes, fields: list[Field]) -> list[Field] | None:
        """Answer another node that uses groups, and asks who else does."""
        known = [limit for limit, _ in self._learn(sender, fields)]
        for limit in known:
            self._serve(limit)  # the sender may have fewer in hand
            limits = self._limits_of(limit.name)
            if self._is_used_up(limit, limits):  # with the sender, there may be too many here
                self._tell_lack(limit)
        return self._tell(known)

    def flush(self) -> None:
        """Forget everything: there are no jobs any more."""
        self.in_use.clear()
        self._by_job.clear()
        self._to_ask.clear()
        self._asked.clear()
        self._to_tell.clear()
        self._soon.clear()
        self._wakes.clear()
        self._looks.clear()
        self.due = self._look_at = 0
