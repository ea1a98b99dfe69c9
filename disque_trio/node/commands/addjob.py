"""ADDJOB: its options, what it is refused for, and how many copies there are to be."""

from typing import Final

from disque_trio.node.commands.arguments import BAD_DELAY, parse_seconds, require_extensions
from disque_trio.node.core.job import UINT16_MAX, UINT32_MAX
from disque_trio.node.core.node import Node
from disque_trio.node.core.policies import NO_POLICY, Policy
from disque_trio.node.core.queue import PAUSED_IN
from disque_trio.protocol.bus import MAX_JOB
from disque_trio.protocol.trailer import Trailer
from disque_trio.resp.ints import parse_int
from disque_trio.respserver.client import Client
from disque_trio.respserver.command import CommandError
from disque_trio.respserver.commands.arguments import SYNTAX, parse_timeout
from disque_trio.respserver.commands.info import human

DEFAULT_TTL: Final = 86_400
DEFAULT_RETRY: Final = 300
DEFAULT_REPLICATE: Final = 3
_SHOWN: Final = 100  # bytes of the name of a policy in an error
MAX_HEADERS: Final = 1_000
MAX_HEADERS_SIZE: Final = 64 * 1024  # bytes of all names and values of a job
MAX_TRAILER: Final = 1 << 20  # bytes of all that the options put into one

_TOO_FEW: Final = "NOREPL Not enough reachable nodes for the requested replication level"


class AddOptions:
    """The options of one ADDJOB.

    Attributes:
        repl: copies, 0: not given. retry: s, -1: not given. ttl: s, 0: not given.
        delay: ms; -1: until ``at``, ms since the epoch.
        maxlen: jobs that the queue may have, 0: any number.
        wait: ASYNC is not given.
        trailer: what the options say that C Disque has no field for; None: nothing.

    Raises:
        CommandError: they are wrong.
    """

    def __init__(self, args: list[bytes]) -> None:
        self.repl = 0
        self.delay = 0
        self.at = 0
        self.retry = -1
        self.ttl = 0
        self.maxlen = 0
        self.wait = True
        self.trailer: Trailer | None = None
        delayed = timed = False
        last = len(args) - 1
        i = 4
        while i <= last:
            option = args[i].lower()
            i += 1
            if option == b"async":
                self.wait = False
                continue
            if i > last:
                raise CommandError(SYNTAX)
            if option == b"delay":
                self.delay = parse_seconds(args[i], BAD_DELAY)
                delayed = True
                i += 1
            elif option == b"at":
                if timed:
                    raise CommandError(SYNTAX)
                self.at = _time(args[i])
                timed = True
                i += 1
            elif option == b"headers":
                i = self._set_headers(args, i)
            elif self._set(option, parse_int(args[i])):
                i += 1
            else:
                raise CommandError(SYNTAX)
        if timed:
            if delayed:
                raise CommandError("ERR AT and DELAY exclude each other")
            self.delay = -1

    def _set(self, option: bytes, value: int | None) -> bool:
        """Set one option that is a number; ``value`` is None where its argument is none. False: it
        is another option."""
        if option == b"replicate":
            self.repl = _at_least(1, value, "ERR REPLICATE must be between 1 and 65535")
            if self.repl > UINT16_MAX:
                raise CommandError("ERR REPLICATE must be between 1 and 65535")
        elif option == b"ttl":
            self.ttl = _at_least(1, value, "ERR TTL must be a number > 0")
        elif option == b"retry":
            self.retry = _at_least(0, value, "ERR RETRY time must be a non negative number")
        elif option == b"maxlen":
            self.maxlen = _at_least(1, value, "ERR MAXLEN must be a positive number")
        else:
            return False
        return True

    def _set_headers(self, args: list[bytes], at: int) -> int:
        """Set HEADERS, whose count is ``args[at]``; returns what follows its last value."""
        trailer = self.trailer
        if trailer is None:
            trailer = self.trailer = Trailer()
        if trailer.headers:
            raise CommandError("ERR HEADERS is given twice")
        count = _at_least(1, parse_int(args[at]), "ERR HEADERS count must be a positive number")
        if count > MAX_HEADERS:
            raise CommandError(f"ERR HEADERS may be {MAX_HEADERS} at most")
        start = at + 1
        if count > (len(args) - start) // 2:
            raise CommandError("ERR HEADERS has fewer names and values than its count says")
        end = start + 2 * count
        headers = args[start:end]
        if sum([len(text) for text in headers]) > MAX_HEADERS_SIZE:
            raise CommandError(f"ERR HEADERS are longer than {MAX_HEADERS_SIZE} bytes in all")
        if b"" in headers[::2]:
            raise CommandError("ERR the name of a header is empty")
        trailer.headers = headers
        return end


def _at_least(least: int, value: int | None, error: str) -> int:
    """``value``. Raises CommandError with the text ``error`` if it is None or below ``least``."""
    if value is None or value < least:
        raise CommandError(error)
    return value


def _time(text: bytes) -> int:
    """An AT, ms since the epoch."""
    value = parse_int(text)
    if not text or value is None or not 0 <= value // 1000 < UINT32_MAX:
        raise CommandError("ERR AT must be a unix time in ms, before 2106")
    return value


_NO_OPTIONS: Final = AddOptions([])


def _follow(policy: Policy, options: AddOptions, delay: int) -> AddOptions:
    """``options``, and those of ``policy`` that are not among them. ``delay``: s. Raises
    CommandError where they do not go together."""
    if policy is NO_POLICY:
        return options
    if options is _NO_OPTIONS:
        options = AddOptions([])
    name = policy.name[:_SHOWN].decode("utf-8", "replace")
    given = options.repl
    both = options.retry == 0 and given != 0
    options.repl = given or policy.replicate
    if options.retry < 0:
        options.retry = policy.retry
    if options.retry == 0 and options.repl > 1 and not both:
        raise CommandError(
            "ERR RETRY 0 (at-most-once delivery) needs REPLICATE 1, and the policy of "
            f"{name} has {'RETRY 0' if given else f'REPLICATE {policy.replicate}'}"
        )
    if not options.ttl:
        options.ttl = policy.ttl
        if 0 < policy.ttl <= delay:
            raise CommandError(
                f"ERR The specified DELAY is greater than TTL, which is {policy.ttl} by the policy "
                f"of {name}. Job refused since would never be delivered"
            )
    return options


def addjob(node: Node, client: Client, args: list[bytes]) -> None:
    """ADDJOB queue body ms-timeout [REPLICATE n] [DELAY s] [AT ms] [RETRY s] [TTL s] [MAXLEN n]
    [ASYNC].

    The checks come in the order in which the C server makes them; what the options do not say, the
    policy of the queue says, if there is one.
    """
    options = _NO_OPTIONS if len(args) == 4 else AddOptions(args)
    delay = 0  # s, as all but the queue of this node know it
    wait = options.delay
    if wait:
        if wait < 0:
            wait = max(options.at - node.now, 0)
        delay = (wait + 999) // 1000
    if node.policies.count:
        options = _follow(node.policies.of(args[1]), options, delay)
    timeout = 0 if args[3] == b"0" else parse_timeout(args[3])
    trailer = options.trailer
    if trailer is not None:
        require_extensions(node)
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
    if delay and (wait >= ttl * 1000 or node.now // 1000 + delay >= UINT32_MAX):
        what = "AT is after the end of" if options.delay < 0 else "DELAY is greater than"
        raise CommandError(
            f"ERR The specified {what} TTL. Job refused since would never be delivered"
        )
    external = _is_external(node)
    if repl > 1 or external:
        if len(args[1]) + len(args[2]) > MAX_JOB - (0 if trailer is None else MAX_TRAILER):
            raise CommandError("ERR the job is too large to be sent to other nodes")
        _check_reachable(node, repl, external)
    name = args[1]
    queue = node.queues.by_name.get(name)
    if queue is not None:
        if options.maxlen and queue.length >= options.maxlen:
            raise CommandError("MAXLEN Queue is already longer than the specified MAXLEN count")
        if queue.paused & PAUSED_IN:
            raise CommandError("PAUSED Queue paused in input, try later")
        name = queue.name
    job = node.store.make_job(name, args[2], repl, delay, retry, ttl)
    if delay:
        job.qtime = node.now + wait
    if trailer is not None:
        node.store.trailers.put(job, trailer)
    if repl == 1 and not external:
        node.replication.place(job)
    elif options.wait or external:
        # ASYNC or not: an id must not be for a job that nobody holds.
        node.replication.add_sync(client, job, external, timeout)
        return
    else:
        node.replication.add_async(job)
    client.out.append(b"+%b\r\n" % job.id)


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
