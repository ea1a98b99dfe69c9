"""Counts what is in queues against the budgets of users: bytes of jobs, of their results and of
paused queues, keys of UNIQUE, schedules, bindings, policies and shared pauses.

All that is in the queues that a user may add to counts for the user, whoever has added it, and as
far as this node holds it. So no job has to say whose it is, the sums are the same after a start,
and the users of one team share what is in their queues.

Nothing is counted before the first user has such a budget. Then what is there is counted in slices,
and from then on as it changes. The sums of each queue are kept, too: if a user may add to other
queues than before, its sums are added up again from them, also in slices. Until that is done, it
has at least what it had before.

A job that lies on disk counts as much as in memory, but for what belongs to it besides its body.
"""

from itertools import islice
from typing import Final

from disque_trio.glob import Glob, glob_prefix
from disque_trio.node.core.copies.admissions import Admissions
from disque_trio.node.core.jobs.job import JOB_OVERHEAD, Job
from disque_trio.node.core.jobs.outcomes import size_of
from disque_trio.node.core.jobs.registry import SHARDS, shard_number
from disque_trio.node.core.jobs.uniques import counted
from disque_trio.node.core.queue_pauses import KnownPauses, QueuePause
from disque_trio.node.core.queues.core import Core
from disque_trio.node.core.queues.queues import taken_by
from disque_trio.node.core.shared.bindings import Binding, Bindings
from disque_trio.node.core.shared.policies import Policy
from disque_trio.node.core.shared.schedules import Schedule, Schedules
from disque_trio.respserver.acl.user import User
from disque_trio.respserver.command import CommandError
from disque_trio.respserver.memory import BINDINGS, KEYS, MEMORY, POLICIES, SCHEDULES, Shares
from disque_trio.respserver.over_budget import name_of, note_limit

COUNTED: Final = 16  # shards of jobs and of keys that are counted per cron
LOOKS: Final = 2_000  # queues, and comparisons of them with globs, per cron
FORGOTTEN: Final = 1_000  # queues per cron
_WHAT: Final = ("memory", "keys", "schedules", "bindings", "policies")


class Owner:
    """A user with a budget for what is in queues.

    Attributes:
        user: it.
        globs: of the queues that the user may add to.
        epoch: since when it is counted for.
        limits: by kind; 0: none.
        sums: what is in all these queues, by kind, as far as it has been added up.
        least: what counts at least, by kind, until all of it has been.
    """

    def __init__(self, user: User, globs: list[bytes], epoch: int) -> None:
        self.user = user
        self.globs = globs
        self.epoch = epoch
        self.limits = [0] * len(_WHAT)
        self.sums = [0] * len(_WHAT)
        self.least = [0] * len(_WHAT)

    def held(self, kind: int) -> int:
        """What counts."""
        return max(self.sums[kind], self.least[kind])


class Share:
    """What is in one queue.

    Attributes:
        sums: by kind.
        owners: those who may add to the queue, as of ``epoch``.
    """

    def __init__(self) -> None:
        self.sums = [0] * len(_WHAT)
        self.owners: list[Owner] = []
        self.epoch = 0


class Budgets(Shares):
    """The sums of all queues of a node, and of its users.

    Args:
        admissions: the jobs that are not added yet.
        schedules, bindings, pauses: the known ones.

    Attributes:
        owners: the users with a budget for what is in queues, by name.
        busy: something is still to be counted.
    """

    def __init__(
        self,
        core: Core,
        admissions: Admissions,
        schedules: Schedules,
        bindings: Bindings,
        pauses: KnownPauses,
    ) -> None:
        self.owners: dict[bytes, Owner] = {}
        self.busy = False
        self._machine = core.machine
        self._store = core.store
        self._admissions = admissions
        self._schedules = schedules
        self._bindings = bindings
        self._policies = core.policies
        self._pauses = pauses
        self._shares: dict[bytes, Share] = {}
        self._epoch = 0
        # The globs of all owners, by what they begin with before the first special character, and
        # the lengths of these beginnings.
        self._globs: dict[bytes, list[tuple[Glob, Owner]]] = {}
        self._lengths: list[int] = []
        self._to_add: list[bytes] = []  # queues whose sums are not added to those of the users
        self._empty: dict[bytes, None] = {}  # queues with nothing, unless that has changed since
        self._scanned = 0  # shards of jobs whose changes are counted

    # ---- users ------------------------------------------------------------------------------

    def users_changed(self) -> None:
        """Look at the users again."""
        before = self.owners
        owners: dict[bytes, Owner] = {}
        fresh = False
        for user in self._machine.users.sorted():
            if user.budget is None or not user.budget.about_queues:
                continue
            globs = user.adds_to()
            owner = old = before.get(user.name)
            if owner is None or owner.user is not user or owner.globs != globs:
                owner = Owner(user, globs, self._epoch + 1)
                fresh = True
                if old is not None:
                    owner.least = [old.held(kind) for kind in range(len(_WHAT))]
            limits = user.budget.limits()
            owner.limits = [limits.get(name, 0) for name in _WHAT]
            owners[user.name] = owner
        if not fresh and len(owners) == len(before):
            return
        self.owners = owners
        self._globs = {}
        for owner in owners.values():
            for pattern in owner.globs:
                start = glob_prefix(pattern)
                self._globs.setdefault(start, []).append((Glob(pattern), owner))
        self._lengths = sorted({len(start) for start in self._globs})
        if fresh and self._machine.memory.shares is None:
            self._begin()
        self._add_up()

    def _begin(self) -> None:
        """Count from now on."""
        self._machine.memory.shares = self
        for schedule in self._schedules.all():
            self.add(schedule.queue, SCHEDULES, 1)
        for binding in self._bindings.all():
            self.add(binding.queue, BINDINGS, 1)
        for policy in self._policies.all():
            self._count_policy(policy, 1)
        for pause in self._pauses.all():
            self._count_policy(pause, 1)
        self._schedules.on_count = self._count_schedule
        self._bindings.on_count = self._count_binding
        self._policies.on_count = self._count_policy
        self._pauses.on_count = self._count_policy
        store = self._store
        for segment in store.queues.pages.segments.values():
            self.add(segment.queue, MEMORY, segment.live * JOB_OVERHEAD + segment.bodies)
        held = store.jobs.count + store.uniques.entries.count + store.queues.index.count
        held += store.outcomes.kept.by_id.count
        self._scanned = 0 if held or self._admissions.held else SHARDS

    def _add_up(self) -> None:
        """Add the sums of all queues to those of new owners, and forget old ones."""
        self._epoch += 1
        self._to_add = list(self._shares)
        self.busy = True
        if len(self._shares) <= LOOKS:
            self.go_on()

    def _adopt(self, name: bytes, share: Share) -> int:
        """Add the sums of the queue ``name`` to those of the new owners who may add to it. Returns
        how many globs it was compared with."""
        found = {owner: None for owner in share.owners if self._is_known(owner)}
        looks = 0
        for length in self._lengths:
            if length > len(name):
                break
            for glob, owner in self._globs.get(name[:length], ()):
                if owner.epoch <= share.epoch or owner in found:
                    continue
                looks += 1
                if glob.matches(name):
                    found[owner] = None
                    for kind in range(len(_WHAT)):
                        owner.sums[kind] += share.sums[kind]
        share.owners = list(found)
        share.epoch = self._epoch
        return looks

    def _is_known(self, owner: Owner) -> bool:
        return self.owners.get(owner.user.name) is owner

    # ---- counting ---------------------------------------------------------------------------

    def add(self, queue: bytes, kind: int, amount: int) -> None:
        share = self._shares.get(queue)
        if share is None:
            share = self._shares[queue] = Share()
        if share.epoch != self._epoch:
            self._adopt(queue, share)
        share.sums[kind] += amount
        for owner in share.owners:
            owner.sums[kind] += amount
        if amount < 0 and not any(share.sums):
            self._empty[queue] = None  # most soon have something again

    def job_grew(self, job_id: bytes, queue: bytes, size: int) -> None:
        if self.counts(job_id):
            self.add(queue, MEMORY, size)

    def queue_grew(self, queue: bytes, size: int) -> None:
        if self.counts(queue):
            self.add(queue, MEMORY, size)

    def exceeds(self, queue: bytes) -> bool:
        self.add(queue, MEMORY, 0)  # finds the owners, if they are not known
        owners = self._shares[queue].owners
        return any(0 < owner.limits[MEMORY] < owner.held(MEMORY) for owner in owners)

    def counts(self, job_id: bytes) -> bool:
        return self._scanned == SHARDS or shard_number(job_id) < self._scanned

    def go_on(self) -> None:
        """Do a slice of what is still to be counted, and forget queues with nothing in them."""
        for name in list(islice(self._empty, FORGOTTEN)):
            del self._empty[name]
            share = self._shares.get(name)
            if share is not None and not any(share.sums):
                del self._shares[name]
        looks = 0
        while self._to_add and looks < LOOKS:
            name = self._to_add.pop()
            share = self._shares.get(name)
            looks += 1
            if share is not None and share.epoch != self._epoch:
                looks += self._adopt(name, share)
        if self._scanned < SHARDS:
            for _ in range(COUNTED):
                self._count_shard(self._scanned)
        self.busy = len(self._to_add) > 0 or self._scanned < SHARDS
        if not self.busy:
            for owner in self.owners.values():
                owner.least = [0] * len(_WHAT)

    def _count_shard(self, number: int) -> None:
        for job in self._store.jobs.shards[number].values():
            self._count_job(job)
        for admission in self._admissions.held.values():
            if shard_number(admission.job.id) == number:
                self._count_job(admission.job)
        for entry in self._store.uniques.entries.shards[number].values():
            if not entry.shared:
                entry.shared = True
                self.add(entry.queue, KEYS, 1)
                self.add(entry.queue, MEMORY, counted(entry))
        for outcome in self._store.outcomes.kept.by_id.shards[number].values():
            if outcome.queue:
                self.add(outcome.queue, MEMORY, size_of(outcome))
        for queue in self._store.queues.index.shards[number].values():
            if queue.paused:
                self.add(queue.name, MEMORY, taken_by(queue.name))
        self._scanned = number + 1

    def _count_job(self, job: Job) -> None:
        self.add(job.queue, MEMORY, JOB_OVERHEAD + len(job.body or b""))
        trailer = self._store.trailers.of(job)
        if trailer is not None:
            trailer.shared = True
            self.add(job.queue, MEMORY, trailer.counted)

    def _count_schedule(self, schedule: Schedule, step: int) -> None:
        self.add(schedule.queue, SCHEDULES, step)

    def _count_binding(self, binding: Binding, step: int) -> None:
        self.add(binding.queue, BINDINGS, step)

    def _count_policy(self, policy: Policy | QueuePause, step: int) -> None:
        self.add(policy.name, POLICIES, step)

    def flush(self) -> None:
        """Forget jobs and keys: the node has forgotten them."""
        if self._machine.memory.shares is not self:
            return
        self._scanned = SHARDS
        for name in list(self._shares):
            share = self._shares[name]
            share.sums[MEMORY] = share.sums[KEYS] = 0
            if not any(share.sums):
                del self._shares[name]
        for owner in self.owners.values():
            for kind in (MEMORY, KEYS):
                owner.sums[kind] = owner.least[kind] = 0

    # ---- limits -----------------------------------------------------------------------------

    def admit(self, user: User, size: int, keys: int = 0) -> None:
        """Check that ``user`` may add ``size`` bytes and so many ``keys`` to one of its queues.

        Raises:
            CommandError: it may not.
        """
        owner = self._owner_of(user)
        if owner is not None:
            self._check(owner, size, keys)

    def is_full(self, user: User) -> bool:
        """Whether the queues of ``user`` hold as many bytes as it may have."""
        owner = self.owners.get(user.name)
        return owner is not None and 0 < owner.limits[MEMORY] <= owner.held(MEMORY)

    def _owner_of(self, user: User) -> Owner | None:
        """What counts for ``user``; None: it has no such budget, or is gone."""
        owner = self.owners.get(user.name)
        return owner if owner is not None and owner.user is user else None

    def _check(self, owner: Owner, size: int, keys: int) -> None:
        held = owner.held(MEMORY)
        limit = owner.limits[MEMORY]
        if 0 < limit < held + size:
            raise CommandError(
                note_limit(
                    self._machine,
                    owner.user,
                    "maxmemory",
                    f"OOM user {name_of(owner.user)} may hold {_size(limit)} of jobs in its queues "
                    f"(%maxmemory), {_size(held)} are held",
                )
            )
        if keys:
            self._check_count(owner, KEYS, "keys of UNIQUE")

    def admit_claimed(self, user: User, counted: bool) -> None:
        """The same for a job that counts already, though its key may not; ``counted``: it does."""
        owner = self._owner_of(user)
        if owner is not None:
            self._check(owner, 0, 0)
            self._check_count(owner, KEYS, "keys of UNIQUE", int(counted))

    def admit_moved(self, user: User, queue: bytes, size: int) -> None:
        """The same for ``size`` bytes that come from ``queue``."""
        if not user.may_add(queue):
            self.admit(user, size)

    def admit_paused(self, user: User, queue: bytes) -> None:
        """The same for ``queue``, which is not paused yet."""
        self.admit(user, taken_by(queue))

    def admit_schedule(self, user: User, queue: bytes, before: bytes | None) -> None:
        """Check that ``user`` may have one more schedule for ``queue``, which replaces one for the
        queue ``before``; None: none. Raises ``CommandError``."""
        if before is None or not user.may_add(before):
            self._admit_one(user, SCHEDULES)

    def admit_binding(self, user: User) -> None:
        """Check that ``user`` may have one more binding. Raises ``CommandError``."""
        self._admit_one(user, BINDINGS)

    def admit_policy(self, user: User) -> None:
        """Check that ``user`` may have one more policy, or pause that all nodes share. Raises
        ``CommandError``."""
        self._admit_one(user, POLICIES)

    def _admit_one(self, user: User, kind: int) -> None:
        owner = self.owners.get(user.name)
        if owner is not None:
            self._check_count(owner, kind, _WHAT[kind])

    def _check_count(self, owner: Owner, kind: int, things: str, new: int = 0) -> None:
        """Check that ``owner`` may have one more of ``things``; ``new`` of them count already."""
        limit = owner.limits[kind]
        if 0 < limit <= owner.held(kind) - new:
            rule = f"max{_WHAT[kind]}"
            raise CommandError(
                note_limit(
                    self._machine,
                    owner.user,
                    rule,
                    f"LIMIT user {name_of(owner.user)} may have {limit} {things} for its queues "
                    f"(%{rule}), there are {owner.held(kind)}",
                )
            )

    def used_by(self, user: User) -> dict[str, int]:
        """What is in the queues that ``user`` may add to, by kind; empty: it has no budget for
        that."""
        owner = self.owners.get(user.name)
        if owner is None:
            return {}
        return {what: owner.held(kind) for kind, what in enumerate(_WHAT)}


def _size(size: int) -> str:
    """``size`` bytes, as in rules."""
    for unit, name in ((1 << 30, "gb"), (1 << 20, "mb"), (1 << 10, "kb")):
        if size >= unit:
            return f"{size / unit:.1f}".removesuffix(".0") + name
    return f"{size} bytes"
