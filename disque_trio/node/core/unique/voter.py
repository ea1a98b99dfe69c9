"""Answers other nodes' questions about keys of ADDJOB UNIQUE (see ``claims``)."""

from functools import partial
from typing import Final

from disque_trio.eventlog import schema
from disque_trio.node.core.copies.copies import Copies
from disque_trio.node.core.jobs import key_messages as words
from disque_trio.node.core.jobs.job import ACKED, FLAG_DELIVERED, QUEUED, WAIT_REPL, Job
from disque_trio.node.core.jobs.key_messages import KeyMessage, Vote, read_message
from disque_trio.node.core.jobs.recent_ids import RecentIds
from disque_trio.node.core.jobs.uniques import Entry
from disque_trio.node.core.queues.core import Core
from disque_trio.node.core.rpc.calls import CLAIM
from disque_trio.protocol.fields import Field
from disque_trio.protocol.keyrecord import ADDED, CONFIRMED, MAX_UNTIL, PENDING
from disque_trio.protocol.trailer import STARTED

MAX_COMPLETED: Final = 1_000  # jobs; up to twice as many are remembered


class Voter:
    """The answers of one node to questions about keys.

    Args:
        copies: makes those that are missing.
    """

    def __init__(self, core: Core, copies: Copies) -> None:
        self._store = core.store
        self._machine = core.machine
        self._uniques = core.store.uniques
        self._tombstones = core.tombstones
        self._copies = copies
        self._paging = core.paging
        self._completed = RecentIds(MAX_COMPLETED)
        core.rpc.handlers[CLAIM] = self._answer
        core.store.uniques.lives = self.lives

    def _answer(self, sender: bytes, fields: list[Field]) -> list[Field] | None:
        """Answer a question of ``sender``. Raises ``FieldsError``."""
        message = read_message(fields)
        vote: Vote | None = None
        if message.op == words.CLAIM:
            vote = self.claim(message)
        elif message.op == words.ASK:
            vote = self.look(message)
        elif message.op == words.CANCEL:
            vote = self.cancel(message)
        else:
            self.on_notification(message)
        return None if vote is None else vote.pack()

    def status(self, id: bytes) -> int:
        """Return this node's status of the job ``id``: NOTHING to STARTED of ``key_messages``."""
        if id in self._uniques.adding:
            return words.ADDING
        job = self._store.jobs.get(id)
        if job is None:
            if self._paging.knows(id):
                return words.HELD
            if self._tombstones.ended.has(id):
                return words.ENDED
            return words.REFUSED if self._uniques.refuses(id) else words.NOTHING
        if job.state == ACKED:
            return words.ENDED
        if job.state == WAIT_REPL:
            return words.ADDING
        trailer = self._store.trailers.of(job)
        started = trailer is not None and trailer.key_state == STARTED
        return words.STARTED if started else words.HELD

    def lives(self, id: bytes) -> bool:
        """Whether this node knows that the job ``id`` has not ended."""
        return self.status(id) in (words.HELD, words.ADDING)

    def claim(self, message: KeyMessage) -> Vote | None:
        """Give the key to a job, unless another one has it, or, if the job was given up, to none.
        None: this node takes nothing now, or has still to see to the copies of the job."""
        uniques = self._uniques
        entry = uniques.find(message.queue, message.key)
        if entry is not None and entry.id != message.id:
            if not self._may_go(entry, message):
                if message.replaces:
                    self._extend(entry, message.left)
                return self._vote(entry, entry.id)
            uniques.drop(entry)
            entry = None
        if uniques.refuses(message.id):
            # Other nodes treat it as given up, and take no copies of it.
            if entry is not None:
                uniques.drop(entry)
            return self._vote(None, b"")
        if message.instead == message.id and not self.is_complete(message.id):
            return None
        state = CONFIRMED if message.final else PENDING
        if entry is None:
            machine = self._machine
            if machine.memory.used > machine.memory.evict_above:
                uniques.make_room(machine.memory.evict_above)
            if machine.add_problem or machine.memory.used > machine.memory.evict_above:
                return None
            until = min(machine.now + message.left, MAX_UNTIL)
            queue = self._store.queues.one_name(message.queue)
            entry = uniques.add(queue, message.key, message.id, state, message.lasts, until)
            uniques.note(entry)
        else:
            if entry.state < state:
                entry.state = state
                uniques.note(entry)
        return self._vote(entry, message.id)

    def _extend(self, entry: Entry, left: int) -> None:
        """Keep ``entry``, unless it lasts for a time of its own, for ``left`` ms more: its job may
        live that long soon."""
        until = min(self._machine.now + left, MAX_UNTIL)
        if until > entry.until and not entry.lasts:
            entry.until = until
            self._uniques.note(entry)

    def is_complete(self, id: bytes) -> bool:
        """Whether the job ``id``, which another node began to add, has its copies, as far as that
        is for this node to see to; if not, makes them: that node may not hold it after all, and
        nobody is told that it was added before others do."""
        job = self._store.jobs.get(id)
        if job is None:
            if self._paging.bring(id):
                return False
            job = self._store.jobs.get(id)
        if job is None or self.status(id) != words.HELD:
            return True
        if not self._completed.has(id):
            self._completed.add(id)
            self._copies.want(job)
        return id not in self._copies.by_id

    def _may_go(self, entry: Entry, message: KeyMessage) -> bool:
        """Whether the job that has the key is gone, as far as the asking node and this one know."""
        return (
            entry.id == message.instead
            and (message.any or entry.state == PENDING)
            and self.status(entry.id) not in (words.HELD, words.ADDING)
        )

    def look(self, message: KeyMessage) -> Vote:
        """Return what this node knows of a job."""
        return self._vote(self._uniques.find(message.queue, message.key), message.id)

    def _vote(self, entry: Entry | None, id: bytes) -> Vote:
        """Return what this node knows of the job ``id``, including ``entry`` if that is its own."""
        if entry is None or entry.id != id:
            return Vote(id, 0, False, 0, self.status(id))
        left = max(entry.until - self._machine.now, 1)
        return Vote(id, entry.state, entry.lasts, left, self.status(id))

    def cancel(self, message: KeyMessage) -> Vote:
        """Forget the copy of a job that was not added, unless somebody relies on it."""
        store = self._store
        uniques = self._uniques
        entry = uniques.find(message.queue, message.key)
        job = store.jobs.get(message.id)
        if job is None:
            if not self._paging.knows(message.id):
                uniques.refuse(message.id)
        elif (
            not self._is_relied_on(job, entry)
            and job.state != ACKED
            and job.state != QUEUED
            and not job.flags & FLAG_DELIVERED
        ):
            uniques.refuse(message.id)
            if store.notes.noting:
                store.notes.note(schema.DELETED, job, schema.BY_PEER)
            store.let_go(job)  # this does not decide who has the key
        return self._vote(entry, message.id)

    def _is_relied_on(self, job: Job, entry: Entry | None) -> bool:
        """Whether somebody may have been told that ``job`` was added; its key has ``entry``."""
        if entry is not None and entry.id == job.id:
            return entry.state > PENDING
        # After the time of a key is over, nobody knows whether it was.
        trailer = self._store.trailers.of(job)
        until = 0 if trailer is None else trailer.key_until
        return until > 0 and (entry is None or until <= self._machine.now)

    def on_notification(self, message: KeyMessage) -> None:
        """Handle a message that has no answer."""
        if message.op == words.BURY:
            if self.status(message.id) == words.NOTHING:
                self._uniques.refuse(message.id)
            return
        entry = self._uniques.find(message.queue, message.key)
        if entry is None or entry.id != message.id:
            return
        held = self.status(message.id) == words.HELD
        if message.op == words.FREE and held:
            self._note_start(message)
            return
        free = message.op == words.WITHDRAW or (message.op == words.FREE and not entry.lasts)
        if free and not held:
            self._uniques.drop(entry)
        elif message.op == words.SAY_ADDED:
            self._uniques.raise_to(entry, ADDED)

    def _note_start(self, message: KeyMessage) -> None:
        """Note that a client of another node got a job that this node holds."""
        job = self._store.jobs.get(message.id)
        if job is not None:
            self._uniques.note_start(job)
        else:
            self._paging.bring(message.id, partial(self.on_notification, message))
