"""Limits of queues: how many jobs are delivered per second, and how many may be in hand at once.

A limit (RATE, ACTIVE; see ``policies``) applies to the whole cluster, and is divided among the
nodes whose clients want jobs of the queue. A node that begins to want jobs asks the others first,
and delivers nothing before they have answered, so they know of its share before it takes it. It
asks again every second; a node that has not been heard of for three seconds no longer counts. If
another node still has more in hand than its share, because it had more before, the others divide
what it leaves. A node with room in its share of ACTIVE leaves it to others that want jobs, once its
clients have wanted none for a moment.

While its share of ACTIVE is used up, a node asks others for no jobs, and gives its own to those
that ask, whoever waits here (see ``federation`` and ``exports``). While its part of a RATE is used
up, it does not ask for jobs by pattern (see ``interests``).

Nodes that cannot be reached are not asked: in a partition into n parts, up to n times the limit is
delivered. C nodes know no limits.

A rate is a token bucket, represented by the time when it will be full (see the generic cell rate
algorithm of ITU-T I.371). When a node stops, what it delivered lately counts for the others, so
that clients do not get more by moving from node to node.
"""

from collections.abc import Callable
from functools import partial
from heapq import heappop, heappush
from itertools import islice
from typing import Final

from disque_trio.node.core.jobs.job import FLAG_HOLDS_GROUP, FLAG_IN_HAND, Job
from disque_trio.node.core.jobs.replicas import Replicas
from disque_trio.node.core.jobs.timers import sooner
from disque_trio.node.core.jobs.trailers import Trailers
from disque_trio.node.core.queues.group_limits import LimitedGroups
from disque_trio.node.core.queues.grouping import Grouping
from disque_trio.node.core.queues.queue import PAUSED_OUT, Queue
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
from disque_trio.node.core.rpc.calls import LIMIT, Question
from disque_trio.node.core.rpc.services import Services
from disque_trio.node.core.shared.policies import Policies, Policy
from disque_trio.protocol.bus import MAX_NAME_IN_FIELDS
from disque_trio.protocol.fields import Field, number_of, pack_number
from disque_trio.resp.reply import Value

ASKING_TIME: Final = 100  # ms that GETJOB NOHANG waits for the answers
_AT_ONCE: Final = 100  # limits to look at per turn
_LOOKED_AT: Final = 1_000  # limits, to find those that allow nothing yet
_LONGEST: Final = 1_000  # length limit for the names that are told, in bytes

# Why a queue is held back.
ASKING: Final = b"asking"  # the other nodes have not answered
BY_RATE: Final = b"rate"
BY_ACTIVE: Final = b"active"
BY_GROUPS: Final = b"groups"  # each group waits for one of its jobs

# Types of fields.
_QUEUE: Final = 2
_WANTS: Final = 3  # 1: the sender wants jobs
_IN_HAND: Final = 4  # jobs
_DEBT: Final = 5  # ms until the sender's bucket is full


class Limits:
    """Keeps the queues of one node within their limits.

    Args:
        policies: of the queues.
        queues: the queues.
        trailers: tell a job's group.
        replicas: has this node's id.

    Attributes:
        policies: as given. grouping: keeps the queues in groups. of_groups: keeps these within
            their limits.
        by_name: the limited queues that are in use, or were until lately.
        needed: something may have to be held back; otherwise ``holds_back`` need not be asked.
        on_taken_back: called when a job with FLAG_IN_HAND has left a client's hands, with whether
            its time was over.
    """

    def __init__(
        self,
        services: Services,
        policies: Policies,
        queues: Queues,
        trailers: Trailers,
        replicas: Replicas,
    ) -> None:
        self.by_name: dict[bytes, Limit] = {}
        self.policies = policies
        self.grouping = Grouping(services, policies, queues, trailers)
        self.of_groups = LimitedGroups(
            services, policies, queues, self.grouping, trailers, replicas
        )
        self.needed = False
        self.on_taken_back: Callable[[Job, bool], None] | None = None
        self._machine = services.machine
        self._queues = queues
        self._rpc = services.rpc
        self._replicas = replicas
        self._peers = services.peers
        self._dues: list[tuple[int, bytes]] = []  # heap: when to look at which queue
        self._last = 0  # when ``cron`` was last called
        services.rpc.handlers[LIMIT] = self._answer
        policies.on_change = self._policies_changed

    def _policies_changed(self) -> None:
        self.grouping.compare()
        self.of_groups.look_soon()
        self.judge_need()
        for limit in self.by_name.values():
            if limit.refresh != self._machine.now:
                self._refresh_at(limit, self._machine.now)  # waiting clients may now be served

    def judge_need(self) -> None:
        """Compute ``needed``."""
        policies = self.policies
        self.needed = bool(
            policies.limited
            or policies.grouped
            or self.grouping.groups
            or self._machine.lagging
            or self._queues.pages.dry
        )

    def wake(self, due: int) -> None:
        """Have the rare work done by ``due`` (ms)."""
        self._rpc.timer.wake_by(max(due, 1))

    def file_lags(self) -> None:
        """Hold back at-most-once jobs from now on, or do so no longer, as the machine says."""
        self.judge_need()
        if not self._machine.lagging:
            for queue in self._queues.index.values():
                if queue.waiters:
                    self._queues.look_at(queue)

    # ---- delivering -------------------------------------------------------------------------

    def holds_back(self, queue: Queue, waits: bool) -> bool:
        """Whether the first job of ``queue`` must not be delivered now. ``waits``: the client that
        wants it waits already; other clients come after the waiting ones."""
        if queue.dry and queue.groups is None:
            return True
        policy = self.policies.of(queue.name)
        if policy.groups or queue.groups is not None:
            self.grouping.follow(queue)
            if not queue.deliverable():
                return True
        if self._machine.lagging and queue.first_with_retry() is None:
            return True
        if self._is_held_back(queue, policy, waits):
            return True
        if queue.groups is None or not policy.limits_groups():
            return False
        if not self.of_groups.admit(queue):
            return True
        return self._machine.lagging and queue.first_with_retry() is None

    def _is_held_back(self, queue: Queue, policy: Policy, waits: bool) -> bool:
        """Whether the limits of ``policy`` hold back the first job of ``queue``."""
        if not policy.is_limited() or len(queue.name) > MAX_NAME_IN_FIELDS:
            return False
        if not waits and queue.waiters:
            return True
        limit = self.by_name.get(queue.name)
        if limit is None:
            limit = self.by_name[queue.name] = Limit(queue.name)
        limit.wanted = self._machine.now
        limit.reason = self._reason(limit, policy)
        if limit.reason == BY_ACTIVE:
            self._tell_lack(limit)
        return limit.reason != b""

    def _reason(self, limit: Limit, policy: Policy) -> bytes:
        """Return why no job can be delivered from the queue of ``limit`` now; empty: one can."""
        if limit.joined <= self._machine.now:
            limit.joined = 0  # the others have forgotten it, if they ever knew
            if not self._awaits_connections(limit):
                self._ask(limit)
            if not limit.joined:
                return ASKING
        if self._is_used_up(limit):
            return BY_ACTIVE
        return BY_RATE if self._awaits_rate(limit, policy) else b""

    def is_used_up(self, queue: Queue) -> bool:
        """Whether clients here have as many jobs of ``queue`` in hand as they may."""
        limit = self.by_name.get(queue.name)
        if limit is None or limit.joined <= self._machine.now or not self._is_used_up(limit):
            return False
        limit.reason = BY_ACTIVE
        self._tell_lack(limit)
        return True

    def _awaits_rate(self, limit: Limit, policy: Policy) -> bool:
        """Whether the rate of ``policy`` allows no job of the queue of ``limit`` yet."""
        due = limit.rate_due(policy, self._machine.now)
        if not due:
            return False
        if limit.reason != BY_ACTIVE:
            limit.reason = BY_RATE
        self._wake_at(limit, due)
        return True

    def without_room(self, most: int) -> list[bytes]:
        """Return the names of up to ``most`` queues of which the rate allows clients here no job
        yet, or of which they have as many in hand as they may, and there are more here. These
        queues are looked at again as soon as that changes."""
        found: list[bytes] = []
        for limit in islice(self.by_name.values(), _LOOKED_AT):
            name = limit.name
            if len(name) > _LONGEST:
                continue
            queue = self._queues.by_name.get(name)
            if self._awaits_rate(limit, self.policies.of(name)) or (
                queue is not None and queue.length and self.is_used_up(queue)
            ):
                limit.excepted = True
                found.append(name)
                if len(found) == most:
                    break
        return found

    def is_used_up_at(self, id: bytes, queue: Queue, since: int) -> bool:
        """Whether the node ``id`` has said after ``since`` (ms) that its clients have as many jobs
        of ``queue`` in hand as they may."""
        limit = self.by_name.get(queue.name)
        if limit is None or id not in limit.users or limit.users[id].last_seen <= since:
            return False
        active = self.policies.of(queue.name).active
        return active > 0 and id in limit.lacking(self._replicas.own, active)

    def has_room_again(self, queue: Queue) -> bool:
        """Whether a limit allowed clients here no job of ``queue``, and allows one now; says so
        once."""
        limit = self.by_name.get(queue.name)
        if limit is None or not (limit.excepted or limit.reason in (BY_ACTIVE, BY_RATE)):
            return False
        if self._is_used_up(limit) or self._awaits_rate(limit, self.policies.of(queue.name)):
            return False
        limit.reason = b""
        limit.excepted = False
        return True

    def _tell_lack(self, limit: Limit) -> None:
        """Let other nodes know that this one has used up its share, so that they leave it room."""
        if limit.told < len(limit.in_hand) and limit.sharers() > 1:
            self._tell_all(limit)

    def _is_used_up(self, limit: Limit) -> bool:
        return limit.is_used_up(self._replicas.own, self.policies.of(limit.name).active)

    def _awaits_connections(self, limit: Limit) -> bool:
        """Whether to wait for the connection to a missing node, because this one has just started,
        or has lost the connection."""
        peers, now = self._peers, self._machine.now
        for id in peers.reachable:
            if peers.understands(id) and not peers.linked(id):
                limit.missed = limit.missed or now
                if now - limit.missed >= ANSWER_TIME:
                    break
                self._wake_at(limit, now + LINK_LOOK)
                return True
        else:
            limit.missed = 0
        return False

    def delivered(self, job: Job) -> None:
        """Count ``job``, which was given to a client."""
        policy = self.policies.of(job.queue)
        limit = self.by_name.get(job.queue)
        if self.of_groups.in_use:
            self.of_groups.delivered(job)
        if limit is None or not policy.is_limited():
            return
        limit.count(policy, self._machine.now)
        if policy.active and job.retry:
            job.flags |= FLAG_IN_HAND
            limit.in_hand[job.id] = None
            limit.used = self._machine.now

    def resume(self, job: Job) -> None:
        """Count ``job``, which a client got before this node started, as in its hands."""
        policy = self.policies.of(job.queue)
        if policy.groups:
            queue = self._queues.by_name.get(job.queue) or self._queues.create(job.queue)
            self.grouping.follow(queue)
            self.grouping.hold(job, True)
            self.of_groups.resume(job)
        if policy.active and len(job.queue) <= MAX_NAME_IN_FIELDS:
            limit = self.by_name.get(job.queue)
            if limit is None:
                limit = self.by_name[job.queue] = Limit(job.queue)
            job.flags |= FLAG_IN_HAND
            limit.in_hand[job.id] = None

    def group_all(self) -> None:
        """Group the jobs of all queues whose policies say so."""
        if self.policies.grouped:
            for queue in self._queues.index.values():
                if self.policies.of(queue.name).groups:
                    self.grouping.follow(queue)

    def release(self, job: Job) -> None:
        """Release ``job`` (FLAGS_HOLDING), which has ended, or is about to be queued again."""
        if job.flags & FLAG_HOLDS_GROUP:
            self.grouping.release(job)
        if job.flags & FLAG_IN_HAND:
            self.taken_back(job)

    def taken_back(self, job: Job, timed_out: bool = False) -> None:
        """Note that ``job``, which has FLAG_IN_HAND, has left its client's hands: it has ended, was
        handed back or, if ``timed_out``, nobody has said anything in time."""
        job.flags &= ~FLAG_IN_HAND
        if self.on_taken_back is not None:
            self.on_taken_back(job, timed_out)
        if self.of_groups.in_use:
            self.of_groups.taken_back(job)
        limit = self.by_name.get(job.queue)
        if limit is not None:
            limit.in_hand.pop(job.id, None)
            limit.used = self._machine.now  # the client may want another one
            if limit.users and (not self._wants(limit) or self._is_used_up(limit)):
                # Another node may have a job instead.
                if limit.asking:
                    self._tell_all(limit)
                else:
                    self._ask(limit)
            self._serve(limit)

    def _serve(self, limit: Limit) -> None:
        """Look at the clients that wait for the queue of ``limit`` in this turn; if it has no jobs,
        others are asked for some."""
        queue = self._queues.by_name.get(limit.name)
        if queue is not None and (
            queue.waiters or queue.length or self._queues.interests is not None
        ):
            self._queues.ready.append(queue)
        if limit.spare == 0 and self._can_spare(limit):
            self._spare_at(limit, limit.used + SPARED)

    # ---- time -------------------------------------------------------------------------------

    def _wake_at(self, limit: Limit, time: int) -> None:
        """Look at the waiting clients at ``time`` (ms)."""
        if limit.wake == 0 or time < limit.wake:
            limit.wake = time
            self._plan(limit, time)

    def _plan(self, limit: Limit, time: int) -> None:
        heappush(self._dues, (time, limit.name))
        self._rpc.timer.wake_by(time)

    def cron(self, now: int) -> None:
        """Do the periodic work. If the clock was set back, move all planned times back as far."""
        if self.grouping.groups:
            self.grouping.compare_some()
        self.judge_need()
        back = self._last - now
        self._last = now
        if back > 0:
            self.of_groups.set_back(back)
            for limit in self.by_name.values():
                limit.set_back(back)
                self._refresh_at(limit, now)

    @property
    def due(self) -> int:
        """Return when ``go_on`` next has something to do, in ms; 0: never."""
        due = self._dues[0][0] if self._dues else 0
        return sooner(sooner(due, self.grouping.due), self.of_groups.due)

    def go_on(self, now: int) -> None:
        """Do what is due at ``now``."""
        self.grouping.go_on(now)
        self.of_groups.go_on(now)
        for _ in range(_AT_ONCE):
            if not self._dues or self._dues[0][0] > now:
                return
            limit = self.by_name.get(heappop(self._dues)[1])
            if limit is None:
                continue
            if limit.wake and limit.wake <= now:
                limit.wake = 0
                self._serve(limit)
            if limit.spare and limit.spare <= now:
                limit.spare = 0
                self._spare(limit)
            if limit.refresh and limit.refresh <= now:
                limit.refresh = 0
                self._look_again(limit)

    def _look_again(self, limit: Limit) -> None:
        """Tell the other nodes that this one still uses the queue of ``limit``, or stop using
        it."""
        now = self._machine.now
        limit.forget_silent(now)
        policy = self.policies.of(limit.name)
        if policy.rate:  # no more debt than one job by this rate, whatever it was before
            limit.full = min(limit.full, now + limit.most_debt(policy))
        if limit.reason == BY_RATE:
            self._serve(limit)  # it may be over sooner than was planned
        queue = self._queues.by_name.get(limit.name)
        if queue is not None and queue.waiters and (queue.length or self._is_used_up(limit)):
            limit.wanted = now
        wants = self._wants(limit)
        if wants or limit.in_hand or limit.full > now:
            self._refresh_at(limit, now + REFRESH)
            if wants or limit.in_hand:
                self._ask(limit)
                self._serve(limit)  # the limit may have changed
        else:
            if limit.spare:  # planned by ``_wants``, and forgotten with it
                self._tell_all(limit)
            del self.by_name[limit.name]

    def _wants(self, limit: Limit) -> bool:
        """Whether clients of this node want jobs of the queue of ``limit``. If not, it has to ask
        before they get some again."""
        now = self._machine.now
        wants = now - limit.wanted < WANTED
        if not wants:
            if limit.joined and limit.spare == 0 and limit.sharers() > 1:
                self._spare_at(limit, now)  # tell all nodes
            limit.joined = 0
            limit.asks_to_join = False
        return wants

    def _can_spare(self, limit: Limit) -> bool:
        """Whether this node has room that others may want. A part of a RATE is not spared: who
        joins again waits for what the others have delivered."""
        policy = self.policies.of(limit.name)
        if not policy.active or policy.rate or not limit.joined:
            return False
        lacking = limit.lacking(self._replicas.own, policy.active)
        return len(lacking) > 0 and not self._is_used_up(limit)

    def _spare_at(self, limit: Limit, time: int) -> None:
        """Plan to ``_spare`` at ``time`` (ms)."""
        limit.spare = time
        self._plan(limit, time)

    def _spare(self, limit: Limit) -> None:
        """Leave the room that this node has to others that want jobs, unless a client here had one
        lately, and tell them."""
        now = self._machine.now
        if limit.joined:
            if not self._can_spare(limit):
                return
            if limit.used + SPARED > now:
                self._spare_at(limit, limit.used + SPARED)
                return
            limit.wanted = now - WANTED
        self._tell_all(limit)

    def _refresh_at(self, limit: Limit, time: int) -> None:
        limit.refresh = time
        self._plan(limit, time)

    # ---- the other nodes --------------------------------------------------------------------

    def _ask(self, limit: Limit) -> None:
        """Tell the other nodes how this one uses the queue of ``limit``, and ask how they do."""
        if limit.asking:
            return
        now = self._machine.now
        limit.asked = now
        limit.told = len(limit.in_hand)
        on_answer = partial(self._on_answer, limit)
        nodes = self._peers.everyone()
        limit.asks_to_join = self._wants(limit)
        question = self._rpc.call(LIMIT, self._tell(limit), nodes, ANSWER_TIME, on_answer)
        limit.asking = True
        if question.over:
            self._all_answered(limit)
        if not limit.refresh:
            self._refresh_at(limit, now + REFRESH)

    def _tell(self, limit: Limit) -> list[Field]:
        """The fields that tell other nodes how this one uses a queue."""
        now = self._machine.now
        return [
            (_QUEUE, limit.name),
            (_WANTS, pack_number(1 if self._wants(limit) else 0)),
            (_IN_HAND, pack_number(len(limit.in_hand))),
            (_DEBT, pack_number(limit.debt(now))),
        ]

    def _tell_all(self, limit: Limit) -> None:
        """Tell the other nodes how this one uses the queue of ``limit``, and do not ask them."""
        limit.told = len(limit.in_hand)
        packet = self._rpc.notification(LIMIT, self._tell(limit))
        for id in self._peers.everyone():
            if self._peers.understands(id):
                self._peers.send(id, packet)

    def _learn(self, limit: Limit, sender: bytes, fields: list[Field]) -> None:
        """Note how the node ``sender`` uses the queue of ``limit``."""
        wants = number_of(fields, _WANTS) != 0
        limit.heard(sender, wants, number_of(fields, _IN_HAND), self._machine.now)

    def _on_answer(self, limit: Limit, question: Question) -> None:
        """Handle the answers of other nodes."""
        if self.by_name.get(limit.name) is not limit:
            return  # everything was forgotten meanwhile
        now = self._machine.now
        # Use each answer once: its sender may say something newer while others are waited for.
        while question.answers:
            sender, fields = question.answers.popitem()
            self._learn(limit, sender, fields)
            policy = self.policies.of(limit.name)
            if not limit.joined and policy.rate:
                limit.owe(number_of(fields, _DEBT), policy, now)
        if question.over:
            self._all_answered(limit)
            self._serve(limit)

    def _all_answered(self, limit: Limit) -> None:
        """Note that all reachable nodes know how this one uses the queue of ``limit``."""
        limit.asking = False
        limit.joined = limit.asked + VALID if limit.asks_to_join else 0

    def _answer(self, sender: bytes, fields: list[Field]) -> list[Field] | None:
        """Answer another node that uses a queue, and asks who else does."""
        for type, name in fields:
            if type == _QUEUE:
                limit = self.by_name.get(name)
                if limit is None:
                    return [(_QUEUE, name)]
                self._learn(limit, sender, fields)
                self._serve(limit)  # the sender may have fewer in hand
                limit.told = min(limit.told, len(limit.in_hand))
                if self._is_used_up(limit):  # with the sender, there may be too many here
                    self._tell_lack(limit)
                return self._tell(limit)
        return None

    # ---- the rest ---------------------------------------------------------------------------

    def is_asking(self, names: list[bytes]) -> bool:
        """Whether other nodes are being asked about one of the queues ``names``."""
        if ASKING in [self.by_name[name].reason for name in names if name in self.by_name]:
            return True
        return self.of_groups.is_asking(names)

    def held_back(self) -> dict[bytes, list[Queue]]:
        """The queues whose jobs clients wait for in vain, by reason."""
        found: dict[bytes, list[Queue]] = {}
        for limit in self.by_name.values():
            queue = self._queues.by_name.get(limit.name)
            if queue is None or queue.paused & PAUSED_OUT:
                continue
            if limit.reason and queue.waiters and queue.deliverable():
                found.setdefault(limit.reason, []).append(queue)
        if waiting := self.grouping.waiting():
            found[BY_GROUPS] = waiting
        return found

    def describe(self, queue: Queue) -> list[Value]:
        """The groups and limits of ``queue`` as QSTAT shows them, and what else holds its jobs
        back; empty: it has none, and nothing does."""
        found = self.grouping.describe(queue)
        lags = self._machine.lagging and queue.deliverable() and queue.first_with_retry() is None
        if not self.policies.of(queue.name).is_limited():
            return [*found, b"held-back-by", b"file"] if lags else found
        limit = self.by_name.get(queue.name) or Limit(queue.name)
        held = b"file" if lags else limit.reason if queue.waiters and queue.length else b""
        users: list[Value] = list(limit.users)
        found += [b"in-hand", len(limit.in_hand), b"held-back-by", held, b"shared-with", users]
        return found

    def flush(self) -> None:
        """Forget everything: there are no jobs any more."""
        self.by_name.clear()
        self.grouping.flush()
        self.of_groups.flush()
        self._dues.clear()
