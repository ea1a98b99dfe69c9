"""The broker: passes clients' requests to the store and the results back to the clients.

Owns the path of a request to the store and of its result to the client. The store owns the events.
"""

from collections.abc import Callable
from typing import Final

from disque_bananaq.core.consumers import Consumers
from disque_bananaq.core.polling import Poller
from disque_bananaq.core.replies import Ask, render
from disque_bananaq.core.requests import (
    Ack,
    Add,
    DeliveryRequest,
    Get,
    Redo,
    Request,
    Status,
    is_event_id,
)
from disque_bananaq.core.results import QueueStatus, Result
from disque_bananaq.core.store import Sections, Store
from disque_trio.native import mypyc_attr
from disque_trio.resp.reply import OK, error, null
from disque_trio.respserver.client import Client
from disque_trio.respserver.command import Command, CommandError
from disque_trio.respserver.host import Host
from disque_trio.respserver.machine import Machine

_BUSY: Final = "ERR bgQAdd processes all busy and buffer is full"


@mypyc_attr(native_class=False)
class Broker(Machine):
    """bananaq's state machine.

    Args:
        store: stores the events.
        commands: the command table.
        host: the environment.
        clock: a monotonic clock in ns, for durations.

    Attributes:
        consumers: the connections that are consumers.
        poller: serves the clients that wait.
        okq_group: the group that okq's commands use.
        okq_expire: how long their events exist, in µs.
        okq: whether okq's commands are enabled.
        background_limit: how many QADDs with NOBLOCK may be in progress.
    """

    def __init__(
        self,
        store: Store,
        commands: "dict[bytes, Command[Broker]]",
        host: Host,
        clock: Callable[[], int],
    ) -> None:
        super().__init__("bananaq", "events", commands, host, clock)
        self.compactable = False
        self.follows_up = False
        self.okq = True
        self.okq_group = b"okq"
        self.okq_expire = 604_800_000_000
        self.background_limit = 1280
        self.consumers = Consumers(store)
        self.poller = Poller(self, store, self.consumers)
        self._store = store
        self._asked: dict[Request, Ask] = {}
        self._background: set[Request] = set()
        self.memory = store.memory
        store.attach(self)

    # ---- requests ---------------------------------------------------------------------------

    def queues_of(self, status: Status) -> list[bytes] | None:
        """The queues that ``status`` is about, for ``status_of``; None: ``ask`` for all at once."""
        return self._store.queues_of(status)

    def status_of(self, queue: bytes, groups: list[bytes]) -> QueueStatus:
        """The status of ``queue``, which is one of ``queues_of``."""
        result = self._store.run(Status([queue], groups), self.now)
        assert result is not None
        return result.queues[0]

    def add_in_background(self, client: Client, add: Add) -> None:
        """Have the store add an event without reporting the outcome."""
        if len(self._background) >= self.background_limit:
            raise CommandError(_BUSY)
        result = self._store.run(add, self.now)
        if result is None:
            self._background.add(add)
        client.out.append(error(result.error) if result is not None and result.error else OK)

    def _answered(self, request: Request, result: Result) -> None:
        """Handle the result of ``request``, for which a client may be waiting."""
        ask = self._asked.pop(request, None)
        if ask is None:
            self._background.discard(request)
            self.poller.answered(request, result)
            return
        again = _by_event_id(request, result)
        if again is not None:
            late = self._store.run(again, self.now)
            if late is None:
                self._asked[again] = ask
                return
            result = late
        client = ask.client
        if client.close and isinstance(request, Get):
            self.poller.give_back(request, result)
        ask.reply = render(result, ask.reply_format, client)
        self.answered.append(ask)

    def may_overlap(self, request: list[bytes]) -> bool:
        command = self.find_command(request[0])
        if command is None or "overlaps" not in command.flags:
            return False
        # With BLOCK, it may have to wait for an event.
        return command.name != "qget" or b"block" not in [word.lower() for word in request[3:]]

    # ---- waiting ----------------------------------------------------------------------------

    def stop_waiting(self, client: Client) -> None:
        self.poller.stop_waiting(client)

    def time_out(self, client: Client) -> None:
        self.poller.time_out(client)

    def end_wait(self, client: Client) -> None:
        self.unblock(client, null(client.resp))

    # ---- what the driver calls ----------------------------------------------------------------

    def after_command(self) -> None:
        self.poller.poll_ready()

    def take_answers(self, now: int) -> None:
        """Handle the results that the store has produced outside of a turn. Called when the store
        reports that there are any."""
        answers = list(self._store.answers)
        self._store.answers.clear()
        for request, result in answers:
            self._answered(request, result)
        self.now = now
        self.poller.poll_ready()

    def forget_client(self, client: Client) -> None:
        super().forget_client(client)
        self.consumers.unregister(client)

    def tick(self, now: int) -> None:
        self.now = now
        self.client = None
        self._store.tick(now)
        self.poller.take_available()
        self.poller.tick(now)
        self.poller.poll_ready()
        self.end_waits(now)

    def next_wake(self) -> int:
        return self.poller.next_due()

    # ---- the file, INFO -----------------------------------------------------------------------

    def held(self) -> int:
        return self._store.held()

    def counts(self) -> Sections:
        return self._store.sections()

    def load_record(self, record: list[bytes], queue_jobs: bool) -> int:
        return self._store.load_record(record, self.now * 1000)

    def load_suspect(self, record: list[bytes]) -> bool:
        return True  # an event, or what became of one

    def load_usual(self, data: bytes, at: int, most: int, queue_jobs: bool) -> tuple[int, int, int]:
        return at, 0, 0

    def start_dump(self) -> None:
        self._store.start_dump()

    def dump_step(self, count: int, room: int) -> tuple[list[bytes], bool]:
        # Records are about 100 bytes long; a step must not take long.
        return self._store.dump_step(min(room, count * 128))


def ask(broker: Broker, client: Client, request: Request, reply_format: int) -> None:
    """Pass ``request`` to the store and reply to ``client`` in the given format.

    Compiled, this is called by every command: a method of a class that derives from one that is
    compiled elsewhere would be called as if it were not compiled.
    """
    result = broker._store.run(request, broker.now)
    if result is not None:
        if result.count == 0 and isinstance(request, DeliveryRequest):
            again = _by_event_id(request, result)
            if again is not None:
                result = broker._store.run(again, broker.now) or result
        client.out.append(render(result, reply_format, client))
        return
    broker._asked[request] = entry = Ask(client, reply_format)
    client.line_up(entry)


def _by_event_id(request: Request, result: Result) -> DeliveryRequest | None:
    """Return the request to make instead of ``request`` if the id, taken for the producer's own id,
    can only be the event's."""
    if result.count or result.error or not isinstance(request, (Ack, Redo)):
        return None
    id = request.own_id
    if id is None or not is_event_id(id):
        return None
    if isinstance(request, Ack):
        return Ack(request.queue, request.group, id)
    return Redo(request.queue, request.group, id)
