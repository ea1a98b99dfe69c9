"""Polls the store for clients that wait.

A wait list is polled when a client enters it, when the store reports that there may be an event,
and when a delivery misses its deadline. There is at most one poll in progress for each list.
"""

from disque_bananaq.core.consumers import Consumers
from disque_bananaq.core.replies import EVENT, event_reply
from disque_bananaq.core.requests import AT_ONCE, Get, Next, Redo, Request
from disque_bananaq.core.results import Result
from disque_bananaq.core.store import Store
from disque_bananaq.core.waiting import PollTimers, Waiter, WaitList, WaitLists
from disque_trio.resp.reply import bulk, error, null
from disque_trio.respserver.client import Client
from disque_trio.respserver.machine import Machine


class _Poll:
    """A poll of ``wait_list``, for an event for ``waiter`` (None: for nobody). ``unpolled`` are the
    waiters for which it is the first poll."""

    __slots__ = ("unpolled", "wait_list", "waiter")

    def __init__(self, wait_list: WaitList, waiter: Waiter | None, unpolled: list[Waiter]) -> None:
        self.wait_list = wait_list
        self.waiter = waiter
        self.unpolled = unpolled


class Poller:
    """Polls ``store`` for the waiting clients of ``machine``, and replies to them.

    Attributes:
        timers: when to poll each wait list at the latest.
    """

    def __init__(self, machine: Machine, store: Store, consumers: Consumers) -> None:
        self.timers = PollTimers()
        self._machine = machine
        self._store = store
        self._available = store.available
        self._consumers = consumers
        self._wait_lists = WaitLists()
        self._ready: list[WaitList] = []
        self._waiters: dict[int, Waiter] = {}  # by client
        self._polls: dict[Request, _Poll] = {}  # in progress
        self._turn = 0

    def wait_for_event(self, client: Client, get: Get, timeout: int) -> None:
        """Make ``client`` wait at most ``timeout`` ms for an event, which ``get`` then takes."""
        self._wait(Waiter(client, get.group, [get.queue], get), timeout)

    def wait_for_news(
        self, client: Client, group: bytes, queues: list[bytes], timeout: int
    ) -> None:
        """Make ``client`` wait at most ``timeout`` ms (0: not at all) until one of ``queues`` has
        an event for ``group``. The reply is the name of the queue."""
        # Poll each queue once, beginning with a different one each time.
        names = list(dict.fromkeys(queues))
        self._turn += 1
        first = self._turn % len(names) if names else 0
        names = names[first:] + names[:first]
        if timeout == 0 and not names:
            client.out.append(null(client.resp))
        else:
            self._wait(Waiter(client, group, names, once=timeout == 0), timeout)

    def _wait(self, waiter: Waiter, timeout: int) -> None:
        """Block the waiter's client, and poll all of its queues soon."""
        client = waiter.client
        self._machine.begin_wait(client, waiter.queues or [b""], timeout)
        self._waiters[client.id] = waiter
        for queue in waiter.queues:
            wait_list = self._wait_lists.make(queue, waiter.group)
            wait_list.add(waiter)
            self._consumers.enter(client, queue, waiter.group)
            self._store.watch(queue, waiter.group)
            self._poll_soon(wait_list)

    def stop_waiting(self, client: Client) -> None:
        """Remove ``client`` from the wait lists."""
        waiter = self._waiters.pop(client.id)
        waiter.gone = True
        for queue in waiter.queues:
            wait_list = self._wait_lists.get(queue, waiter.group)
            if wait_list is not None:
                wait_list.remove(waiter)
                self._wait_lists.drop(wait_list)
            self._store.unwatch(queue, waiter.group)
            self._consumers.leave(client, queue, waiter.group)

    def time_out(self, client: Client) -> None:
        """End the wait of ``client``, which has timed out."""
        waiter = self._waiters[client.id]
        if waiter.taking:
            waiter.over = True  # an event that is on its way must not be lost
        else:
            self._machine.end_wait(client)

    def take_available(self) -> None:
        """Schedule polls for events that the store reports as available, if clients wait."""
        for queue, group in self._available:
            for wait_list in self._wait_lists.of(queue, group):
                self._poll_soon(wait_list)
        self._available.clear()

    def tick(self, now: int) -> None:
        """Schedule the polls due at ``now`` (ms)."""
        for wait_list in self.timers.due(now):
            self._poll_soon(wait_list)

    def _poll_soon(self, wait_list: WaitList) -> None:
        """Schedule a poll of ``wait_list``; if one is in progress, another one after it."""
        if wait_list.polling:
            wait_list.again = True
        elif not wait_list.ready:
            wait_list.ready = True
            self._ready.append(wait_list)

    def next_due(self) -> int:
        """Return when the store, a poll or the end of a wait is due, in ms; 0: nothing is."""
        due = self._store.next_due()
        other = self.timers.next_due()
        if other and (due == 0 or other < due):
            due = other
        if self._waiters:
            other = self._machine.wait_ends.next_due()
            if other and (due == 0 or other < due):
                due = other
        return due

    def poll_ready(self) -> None:
        """Poll the wait lists that may have an event."""
        if self._available:
            self.take_available()
        while self._ready:
            ready = self._ready
            self._ready = []
            for wait_list in ready:
                wait_list.ready = False
                self._poll(wait_list)
            self.take_available()

    def _poll(self, wait_list: WaitList) -> None:
        """Ask the store for an event for ``wait_list``."""
        if wait_list.empty:
            self._wait_lists.drop(wait_list)
            return
        request: Request
        waiter: Waiter | None = None
        if wait_list.getters:
            waiter = next(iter(wait_list.getters))
            assert waiter.get is not None
            request = waiter.get
            waiter.taking = True
        else:
            request = Next(wait_list.queue, wait_list.group)
        poll = _Poll(wait_list, waiter, wait_list.unpolled)
        wait_list.unpolled = []
        wait_list.polling = True
        result = self._store.run(request, self._machine.now)
        if result is None:
            self._polls[request] = poll
        else:
            self._polled(poll, result)

    def answered(self, request: Request, result: Result) -> None:
        """Handle the result of ``request``, which may be a poll."""
        poll = self._polls.pop(request, None)
        if poll is not None:
            self._polled(poll, result)

    def _polled(self, poll: _Poll, result: Result) -> None:
        """Deliver the result of ``poll``."""
        wait_list = poll.wait_list
        wait_list.polling = False
        waiter = poll.waiter
        event = result.event
        if waiter is not None:
            waiter.taking = False
        if result.error:
            self._refuse(wait_list, result)
        elif event is None:
            self._found_nothing(poll, result)
        elif waiter is None:
            for listener in list(wait_list.listeners):
                self._reply(listener.client, bulk(wait_list.queue))
        else:
            # There may be more events, for the next getter or for listeners.
            wait_list.again = True
            wait_list.unpolled += [other for other in poll.unpolled if other is not waiter]
            if not waiter.gone:
                self._reply(waiter.client, event_reply(event, EVENT))
            elif waiter.get is not None:
                self.give_back(waiter.get, result)
        if wait_list.again:
            wait_list.again = False
            self._poll_soon(wait_list)
        self._wait_lists.drop(wait_list)

    def _found_nothing(self, poll: _Poll, result: Result) -> None:
        """Handle a poll that found no event, which ends the wait of some clients."""
        wait_list = poll.wait_list
        waiter = poll.waiter
        if waiter is not None and waiter.over and not waiter.gone:
            self._machine.end_wait(waiter.client)
        for other in poll.unpolled:
            other.unpolled -= 1
            if other.once and other.unpolled == 0 and not other.gone:
                self._machine.end_wait(other.client)
        if result.due and not wait_list.empty:
            # Use the time left, since the store's clock may differ from ours. Add 1 ms, since the
            # deadline must have passed.
            now = self._machine.now
            self.timers.set(wait_list, now + result.left // 1000 + 1, now)

    def _refuse(self, wait_list: WaitList, result: Result) -> None:
        """Answer the waiting clients with the store's error."""
        refusal = error(result.error)
        for waiter in [*wait_list.getters, *wait_list.listeners]:
            if not waiter.gone:
                self._reply(waiter.client, refusal)

    def _reply(self, client: Client, reply: bytes) -> None:
        """End the wait of ``client`` with ``reply``."""
        machine = self._machine
        machine.unblock(client, reply)
        if machine.journaling and client.out:
            machine.uncommitted.append((client, len(client.out) - 1, len(client.out)))

    def give_back(self, get: Get, result: Result) -> None:
        """Give the event of ``get`` back to its group, because its client has gone."""
        event = result.event
        if event is not None and get.hold != AT_ONCE:
            self._store.run(Redo(get.queue, get.group, event.id), self._machine.now)
