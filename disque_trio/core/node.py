"""A node: the state machine that clients and time drive.

Owns the dispatch of commands and packets and the clients that wait; the jobs are ``store``'s and
what is built on it. Nothing here waits, reads a clock or draws a random number by itself: the
driver passes the time (ms since the epoch) into ``command``, ``receive`` and ``tick``, and the
entropy and the generator into the constructor. What the outside has to do comes out as effects. At
the end of a turn, after any number of these calls, the driver

1. writes ``journal`` to the append-only file, or calls ``revoke`` where that fails;
2. calls ``settle``; replies are in ``client.out`` then, and clients other than the caller that got
   one in ``woken``;
3. lets the packets leave that went to ``peers``, then the replies;
4. calls ``tick`` when ``next_wake()`` says.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from disque_trio.core.client import REPLY_ON, REPLY_SKIP, REPLY_SKIP_NEXT, Client, Pending
from disque_trio.core.command import Command, CommandError
from disque_trio.core.federation import FederatedStore
from disque_trio.core.host import Host
from disque_trio.core.job import GONE, Job
from disque_trio.core.latency import LatencyMonitor
from disque_trio.core.memory import UNLIMITED
from disque_trio.core.peers import Peers
from disque_trio.core.queue import PAUSED_OUT, Queue
from disque_trio.core.slowlog import SlowLog
from disque_trio.protocol import bus
from disque_trio.protocol.bus import PacketError, PacketWriter
from disque_trio.protocol.inline import quote
from disque_trio.protocol.reply import error, null_array

if TYPE_CHECKING:
    from random import Random

MAX_JOBS_PER_TICK = 10_000

LEAVING = b"-LEAVING This node is leaving the cluster, please connect to a different one\r\n"
_NOAUTH = b"-NOAUTH Authentication required.\r\n"
_LOADING = b"-LOADING Disque is loading the dataset in memory\r\n"
_OOM = b"-OOM command not allowed when used memory > 'maxmemory'.\r\n"


class Node(FederatedStore):
    """One node.

    Args:
        id: 40 lower-case hex characters.
        commands: the command table, names in lower case.
        host: what is around the state machine (see ``host``).
        peers: the rest of the cluster.
        packets: makes this node's packets; whoever knows the port sets it there.
        entropy: gives so many random bytes, for job ids.
        rng: for times that are spread on purpose.
        clock: monotonic ns, for the durations that SLOWLOG and commandstats show.
        maxmemory: bytes of jobs and queues, 0: no limit.

    Attributes:
        woken: clients other than the caller that were replied to; the driver empties it.
        monitors: clients that see every command.
        unsafe: replies, by client and place in ``client.out``, that are not to be sent unless the
            journal of the turn is in the append-only file; ``settle`` empties it.
        bad_packets: packets of other nodes that were malformed.
    """

    def __init__(
        self,
        id: bytes,
        commands: dict[bytes, Command],
        host: Host,
        peers: Peers,
        entropy: Callable[[int], bytes],
        rng: "Random",
        clock: Callable[[], int],
        maxmemory: int = 0,
        packets: PacketWriter | None = None,
    ) -> None:
        super().__init__(id, peers, packets or PacketWriter(id, 0), entropy, rng, maxmemory)
        self.host = host
        self.commands = commands
        self.woken: list[Client] = []
        self.monitors: list[Client] = []
        self.unsafe: list[tuple[Client, int, int]] = []
        self.loading = False
        self.bad_packets = 0
        self.troubled = False  # one of the two
        self.slowlog = SlowLog()
        self.latency = LatencyMonitor()
        self.total_commands = 0
        self.blocked_clients = 0
        self._lookup: dict[bytes, Command] = dict(commands)
        for name, command in commands.items():
            self._lookup[name.upper()] = command
        self._clock = clock
        self._slow = UNLIMITED  # ns from which a command's duration interests anyone
        self._wait_ends: list[tuple[int, int, Client]] = []  # heap: deadline, number, client
        self._waits = 0

    # ---- what the driver calls ------------------------------------------------------------

    def command(self, client: Client, args: list[bytes], now: int) -> None:
        """Serve one request of ``client``, which must not be blocked.

        The replies are in ``client.out`` afterwards, unless the client is blocked now.
        """
        self.now = now
        self.total_commands += 1
        command = self._lookup.get(args[0])
        if command is None:
            command = self._lookup.get(args[0].lower())
        replies = len(client.out)
        waiting = client.adding
        lined = len(client.line)
        journaled = False
        if command is None:
            client.out.append(error(b"ERR unknown command '%b'" % args[0][:128]))
            # A web page that makes a browser send HTTP here must not get its commands served.
            client.close = args[0].lower() in (b"post", b"host:")
        elif not command.min_args <= len(args) <= command.max_args:
            client.out.append(error(f"ERR wrong number of arguments for '{command.name}' command"))
        elif not client.authenticated and not command.unauthenticated:
            client.out.append(_NOAUTH)
        elif self.memory.used > self.memory.evict_above and not self._may_run(command):
            client.out.append(_OOM)
        elif self.troubled and self._refuses(client, command):
            pass
        else:
            client.last_command = command.name
            self.client = client
            if self.monitors and not command.skip_monitor:
                self._show_monitors(client, command, args)
            start = len(client.out)
            noted = len(self.journal)
            started = self._clock()
            try:
                command.handler(self, client, args)
            except CommandError as failure:
                client.out.append(error(str(failure)))
            self.client = None
            if self.ready:
                self.serve_waiting()
            took = self._clock() - started
            command.calls += 1
            command.nanoseconds += took
            if took >= self._slow:
                self._note_slow(command, args, took)
            if self.journaling and (len(self.journal) != noted or self.flushed):
                if waiting:
                    journaled = True
                else:
                    self.unsafe.append((client, start, len(client.out)))
        if client.adding:
            if len(client.line) == lined:
                self._line_up(client, replies, journaled)
            if len(client.line) != lined:
                client.line[-1].silent = client.reply_mode != REPLY_ON
        if client.reply_mode != REPLY_ON:
            self._silence(client, replies)

    def _line_up(self, client: Client, replies: int, journaled: bool) -> None:
        """A request was served while others of ``client`` wait for their replies: its own, which
        are behind the first ``replies``, have to wait for theirs."""
        if len(client.out) > replies:
            entry = Pending(client, b"".join(client.out[replies:]))
            del client.out[replies:]
            entry.journaled = journaled
            client.line.append(entry)
            client.adding += 1
            self.settled.append(entry)

    def receive(self, sender: bytes, packet: bytes, now: int) -> None:
        """Take in a packet of the types 4 to 15 from the node ``sender``, which is known."""
        self.now = now
        if self.loading:
            return  # half of the jobs is no node
        self.peer = sender
        try:
            self._receive(bus.packet_type(packet), sender, packet)
        except PacketError:
            self.bad_packets += 1
        self.peer = b""
        if self.ready:
            self.serve_waiting()

    def _receive(self, type: int, sender: bytes, packet: bytes) -> None:
        if type == bus.REPLJOB:
            self.on_repljob(sender, packet)
        elif type == bus.GOTJOB:
            self.on_gotjob(sender, packet)
        elif type == bus.SETACK:
            self.on_setack(sender, packet)
        elif type == bus.GOTACK:
            self.on_gotack(sender, packet)
        elif type == bus.DELJOB:
            self.on_deljob(sender, packet)
        elif type == bus.NEEDJOBS:
            self.on_needjobs(sender, packet)
        elif type == bus.YOURJOBS:
            self.on_yourjobs(sender, packet)
        elif type == bus.QUEUED:
            self.on_queued(sender, packet)
        elif type == bus.WILLQUEUE:
            self.on_willqueue(sender, packet)
        elif type == bus.ENQUEUE:
            self.on_enqueue(sender, packet)
        elif type == bus.WORKING:
            self.on_working(sender, packet)
        elif type == bus.PAUSE:
            self.on_pause(sender, packet)

    def revoke(self, refusal: bytes) -> None:
        """The journal of this turn is not in the append-only file: answer ``refusal`` instead of
        confirming what it is about."""
        # From the last to the first, so that the places stay right.
        for client, start, end in reversed(self.unsafe):
            if start < len(client.out):
                client.out[start:end] = [refusal]
        for entry in self.settled:
            if entry.journaled:
                entry.reply = refusal

    def settle(self) -> None:
        """Hand out the replies that became known this turn, each client's in order."""
        self.unsafe.clear()
        if not self.settled:
            return
        settled = self.settled
        self.settled = []
        for entry in settled:
            client = entry.client
            line = client.line
            released = False
            while line and line[0].reply is not None:
                first = line.popleft()
                client.adding -= 1
                released = True
                if not first.silent:
                    client.out.append(first.reply or b"")
            if released:
                self.woken.append(client)

    def set_leaving(self, leaving: bool) -> None:
        """CLUSTER LEAVING: prepare to be taken out of the cluster, or stay."""
        self.leaving = leaving
        self.peers.set_leaving(leaving)
        if leaving:
            self.unblock_all()

    def _refuses(self, client: Client, command: Command) -> bool:
        """Whether the state of the append-only file forbids ``command``; answers it then."""
        if self.write_problem and command.writes:
            client.out.append(misconf(self.write_problem))
            return True
        if self.loading and not command.while_loading:
            client.out.append(_LOADING)
            return True
        return False

    def set_trouble(self, loading: bool, write_problem: str) -> None:
        """Say that jobs are being loaded, or why nothing can be written (empty: it can)."""
        self.loading = loading
        self.write_problem = write_problem
        self.troubled = loading or write_problem != ""

    def _silence(self, client: Client, replies: int) -> None:
        """CLIENT REPLY OFF or SKIP: drop what was replied behind the first ``replies``."""
        del client.out[replies:]
        if client.reply_mode == REPLY_SKIP_NEXT:
            client.reply_mode = REPLY_SKIP
        elif client.reply_mode == REPLY_SKIP and not client.waits_for:
            client.reply_mode = REPLY_ON

    def watch_durations(self, slower_than: int, threshold: int) -> None:
        """Keep commands of ``slower_than`` µs and more (negative: none) in the slow log and
        events of ``threshold`` ms and more (0: none) in the latency monitor."""
        self.slowlog.slower_than = slower_than
        self.latency.threshold = threshold
        self._slow = slower_than * 1000 if slower_than >= 0 else UNLIMITED
        if threshold:
            self._slow = min(self._slow, threshold * 1_000_000)

    def _note_slow(self, command: Command, args: list[bytes], took: int) -> None:
        self.slowlog.add(self.now, took // 1000, _without_password(command, args))
        event = b"fast-command" if "fast" in command.flags else b"command"
        self.latency.add(event, self.now, took // 1_000_000)

    def _show_monitors(self, client: Client, command: Command, args: list[bytes]) -> None:
        time = b"+%d.%06d " % (self.now // 1000, self.now % 1000 * 1000)
        line = b"%b] %b\r\n" % (
            self.host.address(client).encode(),
            b" ".join([quote(arg) for arg in _without_password(command, args)]),
        )
        for monitor in self.monitors:
            # Redis has the database in front of the address, Disque has none. Clients that speak
            # RESP3 are Redis's and look for it.
            monitor.out.append(time + (b"[0 " if monitor.resp == 3 else b"[") + line)
            self.woken.append(monitor)

    def tick(self, now: int) -> None:
        """Do what is due at ``now``: queue again, expire, end waits. At most 10000 jobs a call:
        when there is more to do, ``next_wake`` is in the past afterwards."""
        self.now = now
        self.client = None
        self.peer = b""
        for job in self._timers.due(now, MAX_JOBS_PER_TICK):
            if job.state != GONE:  # what one job causes can end another
                self.job_due(job)
        if self._adding:
            self.try_more(now)
        if self._hungry:
            self.ask_again(now)
        if self._offers:
            self.offer_kept(now)
        self.serve_waiting()
        ends = self._wait_ends
        while ends and ends[0][0] <= now:
            _, number, client = heappop(ends)
            if client.wait_number == number and client.waits_for:
                self.unblock(client, null_array(client.resp))

    def next_wake(self) -> int:
        """When ``tick`` has to be called, ms since the epoch; 0: not before something happens."""
        due = self._timers.next_due()
        ends = self._wait_ends
        while ends and not (ends[0][2].wait_number == ends[0][1] and ends[0][2].waits_for):
            heappop(ends)
        if ends and (due == 0 or ends[0][0] < due):
            due = ends[0][0]
        if self._attempts:
            attempt = self.next_attempt()
            if attempt and (due == 0 or attempt < due):
                due = attempt
        if self._hungry and (due == 0 or self._hungry[0][0] < due):
            due = self._hungry[0][0]
        if self._offers and (due == 0 or self._offers[0][0] < due):
            due = self._offers[0][0]
        return due

    def forget_client(self, client: Client) -> None:
        """``client`` is gone: it waits for nothing any more."""
        if client.waits_for:
            self._stop_waiting(client)
        if client.adding:
            self.cancel_adding(client)
        if client.monitor:
            self.monitors.remove(client)

    # ---- clients that wait ------------------------------------------------------------------

    def block(self, client: Client, names: list[bytes], timeout: int, withcounters: bool) -> None:
        """``client`` waits for one job of the queues ``names``, ``timeout`` ms (0: for ever)."""
        self._waits += 1
        client.wait_number = self._waits
        client.waits_for = names
        client.withcounters = withcounters
        self.blocked_clients += 1
        for name in names:
            queue = self.queues.get(name)
            if queue is None:
                queue = self.create_queue(name)
            queue.waiters[client] = None
        if timeout:
            ends = self._wait_ends
            # Waits that ended early leave their entry behind; they must not pile up.
            if len(ends) > 1000 and len(ends) > 4 * self.blocked_clients:
                ends[:] = sorted(e for e in ends if e[2].wait_number == e[1] and e[2].waits_for)
            heappush(ends, (self.now + timeout, self._waits, client))

    def serve_waiting(self) -> None:
        """Give jobs of the queues that got some to the clients that wait for them."""
        while self.ready:
            queue = self.ready.pop(0)
            while queue.length and queue.waiters and not queue.paused & PAUSED_OUT:
                client = next(iter(queue.waiters))
                self.client = client
                job = self.take_job(queue)
                self.client = None
                self.unblock(client, b"*1\r\n" + job_entry(job, queue, client.withcounters))
                if self.journaling and job.retry == 0 and client.out:
                    self.unsafe.append((client, len(client.out) - 1, len(client.out)))
            if queue.length == 0 and queue.imports is not None:
                self.emptied(queue)

    def unblock(self, client: Client, reply: bytes) -> None:
        """End the wait of ``client``, which must be blocked, with ``reply``."""
        self._stop_waiting(client)
        if client.reply_mode == REPLY_ON:
            client.out.append(reply)
        elif client.reply_mode == REPLY_SKIP:
            client.reply_mode = REPLY_ON
        self.woken.append(client)

    def end_wait(self, client: Client) -> None:
        """End the wait of ``client``, which must be blocked, without a job."""
        self.unblock(client, LEAVING if self.leaving else null_array(client.resp))

    def unblock_all(self) -> None:
        """End all waits: with an error when the node is leaving, else empty."""
        for queue in self.queue_index.values():
            for client in list(queue.waiters):
                self.end_wait(client)

    def _stop_waiting(self, client: Client) -> None:
        for name in client.waits_for:
            self.queues[name].waiters.pop(client, None)
        client.waits_for = []
        self.blocked_clients -= 1

    # ---- the rest ---------------------------------------------------------------------------

    def _may_run(self, command: Command) -> bool:
        """Above 95% of the memory: evict what may go; False when ``command`` must be refused."""
        self.evict(self.memory.evict_above)
        return not command.denyoom or self.memory.used <= self.memory.evict_above

    def name_client(self, client: Client) -> str:
        client.label = super().name_client(client) or self.host.address(client)
        return client.label

    def reset_stats(self) -> None:
        """Set all counters to zero."""
        self.total_commands = 0
        self.total_added = 0
        self.total_delivered = 0
        self.total_acked = 0
        self.total_requeued = 0
        self.total_expired = 0
        self.total_evicted = 0
        self.memory.peak = self.memory.used
        for command in self.commands.values():
            command.calls = 0
            command.nanoseconds = 0

    def flush(self) -> None:
        """Forget all jobs and queues; clients that wait for jobs are told that there are none."""
        self.unblock_all()
        super().flush()


def misconf(problem: str) -> bytes:
    """The error for what cannot be done while the append-only file cannot be written."""
    return error(f"MISCONF Errors writing to the AOF file: {problem}")


def _without_password(command: Command, args: list[bytes]) -> list[bytes]:
    """``args`` as others may see them."""
    if command.name in ("auth", "hello"):
        return [args[0], *[b"(redacted)"] * (len(args) - 1)]
    if command.name == "config":
        shown = list(args)
        for i in range(2, len(args) - 1):
            if args[i].lower() == b"requirepass":
                shown[i + 1] = b"(redacted)"
        return shown
    return args


def job_entry(job: Job, queue: Queue, withcounters: bool) -> bytes:
    """``job`` as GETJOB gives it: queue, id and body, and the counters if asked for."""
    body = job.body
    if body is None:
        body = b""
    if withcounters:
        return (
            b"*7\r\n%b%b\r\n$%d\r\n%b\r\n$5\r\nnacks\r\n:%d\r\n"
            b"$21\r\nadditional-deliveries\r\n:%d\r\n"
        ) % (queue.reply_head, job.id, len(body), body, job.nacks, job.deliveries)
    return b"*3\r\n%b%b\r\n$%d\r\n%b\r\n" % (queue.reply_head, job.id, len(body), body)
