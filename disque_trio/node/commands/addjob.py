"""ADDJOB: its options, what it is refused for, and how many copies there are to be."""

from functools import partial
from typing import Final

from disque_trio.node.commands.arguments import require_extensions
from disque_trio.node.core.job import (
    UINT16_MAX,
    UINT32_MAX,
)
from disque_trio.node.core.node import Node
from disque_trio.node.core.queue import PAUSED_IN
from disque_trio.protocol.bus import MAX_JOB, MAX_QUEUE_NAME
from disque_trio.protocol.keyrecord import ADDED
from disque_trio.protocol.trailer import Trailer
from disque_trio.resp.ints import parse_int
from disque_trio.respserver.client import Client
from disque_trio.respserver.command import CommandError
from disque_trio.respserver.commands.arguments import SYNTAX, parse_timeout
from disque_trio.respserver.commands.info import human

DEFAULT_TTL: Final = 86_400
DEFAULT_RETRY: Final = 300
DEFAULT_REPLICATE: Final = 3
MAX_KEY: Final = 64 * 1024  # bytes

_TOO_FEW: Final = "NOREPL Not enough reachable nodes for the requested replication level"


class AddOptions:
    """The options of one ADDJOB.

    Attributes:
        repl: copies, 0: not given. delay: s. retry: s, -1: not given. ttl: s, 0: not given.
        maxlen: jobs that the queue may have, 0: any number.
        wait: ASYNC is not given.
        key: of UNIQUE, empty: not given. kept: FOR, s, 0: not given. anyway: ANYWAY is given.

    Raises:
        CommandError: they are wrong.
    """

    def __init__(self, args: list[bytes]) -> None:
        self.repl = 0
        self.delay = 0
        self.retry = -1
        self.ttl = 0
        self.maxlen = 0
        self.wait = True
        self.key = b""
        self.kept = 0
        self.anyway = False
        last = len(args) - 1
        i = 4
        while i <= last:
            option = args[i].lower()
            i += 1
            if option == b"async":
                self.wait = False
                continue
            if option == b"anyway":
                self.anyway = True
                continue
            if i > last:
                raise CommandError(SYNTAX)
            if option == b"unique":
                if self.key:
                    raise CommandError("ERR UNIQUE is given twice")
                self.key = _key(args[i])
                i += 1
                continue
            self._set(option, parse_int(args[i]))
            i += 1
        if (self.kept or self.anyway) and not self.key:
            raise CommandError("ERR FOR and ANYWAY belong to UNIQUE")

    def _set(self, option: bytes, value: int | None) -> None:
        """Set one option; ``value`` is None where its argument is no number."""
        if option == b"replicate":
            self.repl = _at_least(1, value, "ERR REPLICATE must be between 1 and 65535")
            if self.repl > UINT16_MAX:
                raise CommandError("ERR REPLICATE must be between 1 and 65535")
        elif option == b"ttl":
            self.ttl = _at_least(1, value, "ERR TTL must be a number > 0")
        elif option == b"retry":
            self.retry = _at_least(0, value, "ERR RETRY time must be a non negative number")
        elif option == b"delay":
            self.delay = _at_least(0, value, "ERR DELAY time must be a non negative number")
        elif option == b"maxlen":
            self.maxlen = _at_least(1, value, "ERR MAXLEN must be a positive number")
        elif option == b"for":
            if value is None or not 0 < value <= UINT32_MAX or self.kept:
                raise CommandError("ERR FOR must be given once, in seconds, from 1 to 4294967295")
            self.kept = value
        else:
            raise CommandError(SYNTAX)


def _key(key: bytes) -> bytes:
    """A key for UNIQUE. Raises CommandError."""
    if not 0 < len(key) <= MAX_KEY:
        raise CommandError(f"ERR a key for UNIQUE must have 1 to {MAX_KEY} bytes")
    return key


def _at_least(least: int, value: int | None, error: str) -> int:
    """``value``. Raises CommandError with the text ``error`` if it is None or below ``least``."""
    if value is None or value < least:
        raise CommandError(error)
    return value


_NO_OPTIONS: Final = AddOptions([])


def addjob(node: Node, client: Client, args: list[bytes]) -> None:
    """ADDJOB queue body ms-timeout [REPLICATE n] [DELAY s] [RETRY s] [TTL s] [MAXLEN n] [ASYNC]
    [UNIQUE key [FOR s] [ANYWAY]].

    The checks come in the order in which the C server makes them.
    """
    options = _NO_OPTIONS if len(args) == 4 else AddOptions(args)
    delay = options.delay
    timeout = 0 if args[3] == b"0" else parse_timeout(args[3])
    repl = options.repl or _default_copies(node)
    retry = options.retry
    if retry == 0 and repl > 1:
        raise CommandError(
            "ERR With RETRY set to 0 please explicitly set  REPLICATE to 1 (at-most-once delivery)"
        )
    ttl = options.ttl or DEFAULT_TTL + delay
    if retry < 0:
        retry = DEFAULT_RETRY if ttl >= 10 * DEFAULT_RETRY else ttl // 10 or 1
    # The end of a life has 32 bits, too.
    if delay and (delay >= ttl or node.now // 1000 + delay >= UINT32_MAX):
        raise CommandError(
            "ERR The specified DELAY is greater than TTL. Job refused since would never "
            "be delivered"
        )
    external = _is_external(node)
    name = args[1]
    if options.key:
        known = _known(node, name, options.key)
        if known:
            client.out.append(b"+%b\r\n" % known)
            return
    # Whether it is a repeat other nodes may have to say first.
    if not options.key or node.peers.size == 1:
        name = _admit(node, args, repl, external, options.maxlen)
    job = node.store.make_job(name, args[2], repl, delay, retry, ttl)
    if options.key:
        trailer = Trailer()
        trailer.key = options.key
        trailer.key_until = node.now + options.kept * 1000 if options.kept else 0
        node.store.trailers.put(job, trailer)
        if node.peers.size > 1:
            admit = partial(_admit, node, args, repl, external, options.maxlen)
            wait = options.wait
            node.claims.begin(client, job, trailer, external, wait, options.anyway, timeout, admit)
            return
        node.store.uniques.hold(job, ADDED)
    if repl == 1 and not external:
        node.replication.place(job)
    elif options.wait or external:
        # ASYNC or not: an id must not be for a job that nobody holds.
        node.replication.add_sync(client, job, external, timeout)
        return
    else:
        node.replication.add_async(job)
    client.out.append(b"+%b\r\n" % job.id)


def _known(node: Node, queue: bytes, key: bytes) -> bytes:
    """The id of the job with this key, as far as this node can tell; empty: there is none."""
    require_extensions(node)
    if len(queue) > MAX_QUEUE_NAME:
        raise CommandError(f"ERR UNIQUE takes names of queues of up to {MAX_QUEUE_NAME} bytes")
    return node.claims.known(queue, key)


def _admit(node: Node, args: list[bytes], repl: int, external: bool, maxlen: int) -> bytes:
    """The name of the queue; raises CommandError if the job cannot be added to it now."""
    if repl > 1 or external:
        if len(args[1]) + len(args[2]) > MAX_JOB:
            raise CommandError("ERR the job is too large to be sent to other nodes")
        _check_reachable(node, repl, external)
    queue = node.queues.by_name.get(args[1])
    if queue is not None:
        if maxlen and queue.length >= maxlen:
            raise CommandError("MAXLEN Queue is already longer than the specified MAXLEN count")
        if queue.paused & PAUSED_IN:
            raise CommandError("PAUSED Queue paused in input, try later")
        return queue.name
    return args[1]


def _default_copies(node: Node) -> int:
    """The number of copies without REPLICATE: three, or as many as there can be."""
    peers = node.peers
    size = peers.places() if peers.by_host else peers.size
    return size if size < DEFAULT_REPLICATE else DEFAULT_REPLICATE


def _is_external(node: Node) -> bool:
    """Whether this node must not hold a new job itself: it is leaving, or short of memory."""
    if node.peers.leaving:
        return True
    memory = node.memory
    if memory.used > memory.external_above and not node.peers.reachable:
        # Nobody else could take it: what may go makes room.
        node.store.evict(memory.external_above)
    return memory.used > memory.external_above


def _check_reachable(node: Node, repl: int, external: bool) -> None:
    """Raise CommandError if too few other nodes can take a copy now."""
    others = repl if external else repl - 1
    reachable = node.peers.room(external)
    if others <= reachable:
        return
    if node.peers.leaving and others - 1 == reachable:
        raise CommandError(
            f"{_TOO_FEW}, since I'm unable to hold a copy of the message for the following "
            "reason: I'm leaving the cluster"
        )
    if external and not node.peers.leaving and repl - 1 <= node.peers.room(False):
        # C says "I'm out of memory" at the end of a text about nodes.
        used, limit = human(node.memory.used), human(node.memory.limit)
        raise CommandError(
            f"NOREPL Memory is short: {used} of {limit} (maxmemory) are used. Above 75% this node "
            "holds no new jobs, and too few other nodes that could take it are reachable. "
            "Acknowledge or delete jobs, raise maxmemory, or add nodes"
        )
    raise CommandError(_TOO_FEW)
