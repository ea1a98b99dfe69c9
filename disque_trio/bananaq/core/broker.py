"""bananaq as clients see it: what they ask a store for, and what they wait for.

Owns the way of an operation to the store and of its answer to the client, the clients that wait,
and those that registered for queues (okq). The events are the store's.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Final

from disque_trio.bananaq.core.embedded import EmbeddedStore
from disque_trio.bananaq.core.ids import is_event_id
from disque_trio.bananaq.core.ops import ACK, ADD, GET, NEXT, REDO, Op
from disque_trio.bananaq.core.replies import EVENT, Ask, event_reply, render
from disque_trio.bananaq.core.store import Store
from disque_trio.bananaq.core.waiting import Line, Lines, Waiter
from disque_trio.core.client import Client
from disque_trio.core.command import Command, CommandError
from disque_trio.core.host import Host
from disque_trio.core.machine import Machine
from disque_trio.protocol.reply import OK, bulk, error, null

_MANY_LOOKS: Final = 1000
_BUSY: Final = "ERR bgQAdd processes all busy and buffer is full"


class _Taking:
    """Tag of an operation that is for a line: which, and the waiter that takes the event."""

    __slots__ = ("fresh", "line", "waiter")

    def __init__(self, line: Line, waiter: Waiter | None, fresh: list[Waiter]) -> None:
        self.line = line
        self.waiter = waiter
        self.fresh = fresh


class Broker(Machine):
    """bananaq's state machine.

    Args:
        store: keeps the events.
        embedded: the same, if it is the store in the process, which this machine writes to its
            append-only file; else None.
        commands: the command table.
        host: what is around.
        clock: monotonic ns, for durations.

    Attributes:
        okq_group: the group that okq's commands are over.
        okq_expire: how long their events exist, µs.
        okq: whether there are okq's commands.
        background_limit: QADDs with NOBLOCK that may be under way.
    """

    def __init__(
        self,
        store: Store,
        embedded: EmbeddedStore | None,
        commands: dict[bytes, Command],
        host: Host,
        clock: Callable[[], int],
    ) -> None:
        super().__init__()
        self.product = "bananaq"
        self.holds = "events"
        self.compactable = False
        self.furnish(commands, host, clock)
        self.okq = True
        self.okq_group = b"okq"
        self.okq_expire = 604_800_000_000
        self.background_limit = 1280
        self._store = store
        self._embedded = embedded
        self._lines = Lines()
        self._ready: list[Line] = []
        self._looks: list[tuple[int, int, Line]] = []  # heap: when to look at a line again
        self._most_looks = _MANY_LOOKS
        self._numbers = 0
        self._waiters: dict[int, Waiter] = {}  # by client
        self._registered: dict[int, list[bytes]] = {}  # by client
        self._entered: dict[tuple[int, bytes, bytes], int] = {}
        self._background = 0
        self._turn = 0
        store.on_available = self.available
        store.on_answer = self._answered

    # ---- operations -------------------------------------------------------------------------

    def ask(self, client: Client, op: Op, form: int) -> None:
        """Let the store do ``op`` and reply to ``client`` in the form ``form``."""
        if self._run(op):
            if _means_event_id(op):
                self._run(op)
            client.out.append(render(op, form, client.resp))
            return
        op.tag = entry = Ask(client, form)
        client.line.append(entry)
        client.adding += 1

    def ask_in_background(self, client: Client, op: Op) -> None:
        """Let the store do ``op``, which adds an event; whether that goes well nobody hears."""
        if self._background >= self.background_limit:
            raise CommandError(_BUSY)
        if self._run(op):
            client.out.append(error(op.error) if op.error else OK)
            return
        self._background += 1
        client.out.append(OK)

    def _run(self, op: Op) -> bool:
        embedded = self._embedded
        if embedded is None:
            return self._store.run(op, self.now)
        embedded.journaling = self.journaling
        return embedded.run(op, self.now)

    def _answered(self, op: Op) -> None:
        """The store has done ``op``, for which somebody waits."""
        if _means_event_id(op) and not self._run(op):
            return
        tag = op.tag
        if isinstance(tag, Ask):
            client = tag.client
            if client.close and op.kind == GET and op.event is not None:
                self._give_back(op)
            tag.reply = render(op, tag.form, client.resp)
            self.settled.append(tag)
        elif isinstance(tag, _Taking):
            self._looked(op, tag)
        elif op.kind == ADD:
            self._background -= 1

    def _give_back(self, op: Op) -> None:
        """Nobody is there any more to take the event of ``op``: let another one have it."""
        event = op.event
        if event is not None and (op.hold or op.hold_until):
            back = Op(REDO, op.queue, op.group)
            back.id = event.id
            self._run(back)

    def may_overlap(self, request: list[bytes]) -> bool:
        command = self._lookup.get(request[0]) or self._lookup.get(request[0].lower())
        if command is None or "overlaps" not in command.flags:
            return False
        # With BLOCK it may have to wait for an event.
        return command.name != "qget" or b"block" not in [word.lower() for word in request[3:]]

    # ---- waiting ----------------------------------------------------------------------------

    def wait_for_event(
        self,
        client: Client,
        queue: bytes,
        group: bytes,
        hold: int,
        hold_until: int,
        timeout: int,
    ) -> None:
        """``client`` waits for at most ``timeout`` ms for the next event of ``queue``."""
        waiter = Waiter(client, group, [queue], True)
        waiter.hold = hold
        waiter.hold_until = hold_until
        self._wait(waiter, timeout)

    def wait_for_news(
        self, client: Client, group: bytes, queues: list[bytes], timeout: int
    ) -> None:
        """``client`` waits for at most ``timeout`` ms (0: not at all) until one of ``queues`` has
        an event for ``group``, and is told its name."""
        # Each queue once, beginning with another one each time.
        names = list(dict.fromkeys(queues))
        self._turn += 1
        first = self._turn % len(names) if names else 0
        names = names[first:] + names[:first]
        waiter = Waiter(client, group, names, False)
        if timeout == 0:
            waiter.once = True
            if not names:
                client.out.append(null(client.resp))
                return
        self._wait(waiter, timeout)

    def _wait(self, waiter: Waiter, timeout: int) -> None:
        client = waiter.client
        self.begin_wait(client, waiter.queues or [b""], timeout)
        self._waiters[client.id] = waiter
        for queue in waiter.queues:
            line = self._lines.make(queue, waiter.group)
            if waiter.takes:
                line.takers[waiter] = None
            else:
                line.listeners[waiter] = None
            line.fresh.append(waiter)
            self._enter(client, queue, waiter.group)
            self._store.watch(queue, waiter.group)
            self._look(line)

    def stop_waiting(self, client: Client) -> None:
        waiter = self._waiters.pop(client.id)
        waiter.gone = True
        for queue in waiter.queues:
            line = self._lines.get(queue, waiter.group)
            if line is not None:
                line.drop(waiter)
                self._lines.forget(line)
            self._store.unwatch(queue, waiter.group)
            self._leave(client, queue, waiter.group)

    def time_out(self, client: Client) -> None:
        waiter = self._waiters[client.id]
        if waiter.taking:
            waiter.over = True  # an event that is on its way must not get lost
        else:
            self.end_wait(client)

    def end_wait(self, client: Client) -> None:
        self.unblock(client, null(client.resp))

    def available(self, queue: bytes, group: bytes | None) -> None:
        """There may be something for those who wait; outside of a turn ``answers_ended`` has to
        follow."""
        if group is None:
            for line in self._lines.of(queue):
                self._look(line)
        else:
            found = self._lines.get(queue, group)
            if found is not None:
                self._look(found)

    def _look(self, line: Line) -> None:
        """Have ``line`` looked at soon."""
        if line.busy:
            line.again = True
        elif not line.ready:
            line.ready = True
            self._ready.append(line)

    def serve_ready(self) -> None:
        """Ask the store for those who wait where there may be something."""
        while self._ready:
            ready = self._ready
            self._ready = []
            for line in ready:
                line.ready = False
                self._serve(line)
        self._keep_books()

    def _serve(self, line: Line) -> None:
        if line.takers:
            waiter = next(iter(line.takers))
            op = Op(GET, line.queue, line.group)
            op.hold = waiter.hold
            op.hold_until = waiter.hold_until
            waiter.taking = True
            tag = _Taking(line, waiter, line.fresh)
        elif line.listeners:
            op = Op(NEXT, line.queue, line.group)
            tag = _Taking(line, None, line.fresh)
        else:
            self._lines.forget(line)
            return
        line.fresh = []
        line.busy = True
        op.tag = tag
        if self._run(op):
            self._looked(op, tag)

    def _looked(self, op: Op, tag: _Taking) -> None:
        """The store has said whether there is something for a line."""
        line = tag.line
        line.busy = False
        waiter = tag.waiter
        event = op.event
        if waiter is not None:
            waiter.taking = False
        if op.error:
            self._refuse(op, tag)
        elif event is None:
            self._nothing(op, tag)
        elif waiter is None:
            for listener in list(line.listeners):
                self._tell(listener.client, bulk(line.queue))
        else:
            # There may be more: for the next one, or for those who listen.
            line.again = True
            line.fresh += [other for other in tag.fresh if other is not waiter]
            if waiter.gone:
                self._give_back(op)
            else:
                self._tell(waiter.client, event_reply(event, EVENT))
        if line.again:
            line.again = False
            self._look(line)
        self._lines.forget(line)

    def _nothing(self, op: Op, tag: _Taking) -> None:
        line = tag.line
        waiter = tag.waiter
        if waiter is not None and waiter.over and not waiter.gone:
            self.end_wait(waiter.client)
        for fresh in tag.fresh:
            fresh.first -= 1
            if fresh.once and fresh.first == 0 and not fresh.gone:
                self.end_wait(fresh.client)
        if op.due and (line.takers or line.listeners):
            # Not by the clock of the store, which may be another one. One more, which is in ms:
            # when it is over.
            look_at = self.now + op.left // 1000 + 1
            if line.look_at == 0 or look_at < line.look_at or line.look_at <= self.now:
                line.look_at = look_at
                self._numbers += 1
                looks = self._looks
                heappush(looks, (look_at, self._numbers, line))
                if len(looks) > self._most_looks:
                    # Those of lines that are gone stay behind; they must not pile up.
                    looks[:] = sorted(look for look in looks if look[2].look_at == look[0])
                    self._most_looks = max(_MANY_LOOKS, 2 * len(looks))

    def _refuse(self, op: Op, tag: _Taking) -> None:
        """The store cannot say whether there is something: who waits has to hear of that."""
        refusal = error(op.error)
        waiters = [*tag.line.takers, *tag.line.listeners]
        for waiter in waiters:
            if not waiter.gone:
                self._tell(waiter.client, refusal)

    def _tell(self, client: Client, reply: bytes) -> None:
        self.unblock(client, reply)
        if self.journaling and client.out:
            self.unsafe.append((client, len(client.out) - 1, len(client.out)))

    # ---- consumers --------------------------------------------------------------------------

    def register(self, client: Client, queues: list[bytes]) -> None:
        """okq: ``client`` is a consumer of ``queues`` from now on, and of no others."""
        for queue in self._registered.pop(client.id, []):
            self._leave(client, queue, self.okq_group)
        names = list(dict.fromkeys(queues))
        if names:
            self._registered[client.id] = names
        for queue in names:
            self._enter(client, queue, self.okq_group)

    def registered(self, client: Client) -> list[bytes]:
        """okq: what ``client`` registered for."""
        return self._registered.get(client.id, [])

    def _enter(self, client: Client, queue: bytes, group: bytes) -> None:
        key = (client.id, queue, group)
        times = self._entered.get(key, 0)
        self._entered[key] = times + 1
        if times == 0:
            self._store.enter(queue, group, client.id)

    def _leave(self, client: Client, queue: bytes, group: bytes) -> None:
        key = (client.id, queue, group)
        times = self._entered[key] - 1
        if times:
            self._entered[key] = times
        else:
            del self._entered[key]
            self._store.leave(queue, group, client.id)

    # ---- what the driver calls ----------------------------------------------------------------

    def after_command(self) -> None:
        self.serve_ready()

    def answers_ended(self, now: int) -> None:
        """The store has handed over all answers that it has."""
        self.now = now
        self.serve_ready()

    def _keep_books(self) -> None:
        """What the embedded store noted is this machine's."""
        embedded = self._embedded
        if embedded is not None:
            self.memory.used = embedded.memory_used
            if embedded.journal:
                self.journal += embedded.journal
                embedded.journal = []

    def forget_client(self, client: Client) -> None:
        super().forget_client(client)
        if client.id in self._registered:
            self.register(client, [])
        self._keep_books()

    def tick(self, now: int) -> None:
        self.now = now
        self.client = None
        embedded = self._embedded
        if embedded is not None:
            embedded.journaling = self.journaling
        self._store.tick(now)
        looks = self._looks
        while looks and looks[0][0] <= now:
            look_at, _, line = heappop(looks)
            if line.look_at == look_at:
                line.look_at = 0
                self._look(line)
        self.serve_ready()
        self.end_waits(now)

    def next_wake(self) -> int:
        due = self._store.next_due()
        end = self.next_wait_end()
        if end and (due == 0 or end < due):
            due = end
        looks = self._looks
        while looks and looks[0][2].look_at != looks[0][0]:
            heappop(looks)
        if looks and (due == 0 or looks[0][0] < due):
            due = looks[0][0]
        return due

    # ---- the file, INFO -----------------------------------------------------------------------

    def held(self) -> int:
        return 0 if self._embedded is None else self._embedded.count

    def counts(self) -> "dict[str, dict[str, str | int | float]]":
        embedded = self._embedded
        if embedded is None:
            return {"events": {"store": "redis"}}
        return {
            "memory": {"maxmemory_policy": "noeviction"},
            "events": {"store": "embedded", "events": embedded.count},
            "stats": {
                "total_events_added": embedded.added,
                "total_events_given": embedded.given,
                "total_events_acked": embedded.acked,
                "total_events_missed": embedded.missed,
                "total_events_expired": embedded.expired,
            },
        }

    def load_record(self, record: list[bytes], queue_jobs: bool) -> int:
        return self._of_file().load_record(record, self.now * 1000)

    def start_dump(self) -> None:
        self._of_file().start_dump()

    def dump_step(self, count: int, room: int) -> tuple[list[bytes], bool]:
        # Records are some 100 bytes long; a step must not take long.
        return self._of_file().dump_step(min(room, count * 128))

    def _of_file(self) -> EmbeddedStore:
        if self._embedded is None:
            raise ValueError("the events are not kept in this process")
        return self._embedded


def _means_event_id(op: Op) -> bool:
    """Whether what was taken for the producer's own id can only be that of the event. The
    operation then is about that event."""
    if not op.by_own_id or op.count or op.error or op.kind not in (ACK, REDO):
        return False
    if not is_event_id(op.own_id):
        return False
    op.id = op.own_id
    op.own_id = b""
    op.by_own_id = False
    return True
