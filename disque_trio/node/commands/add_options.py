"""The options of ADDJOB, and the defaults that the policy of a queue gives them."""

from typing import Final

from disque_trio.job_options import MAX_HEADERS, MAX_HEADERS_SIZE, OPTIONS, TEXTS
from disque_trio.node.commands.arguments import BAD_DELAY, BAD_ID, at_least, parse_seconds
from disque_trio.node.core.jobs.job import MAX_PRIORITY, UINT16_MAX, UINT32_MAX
from disque_trio.node.core.shared.policies import NO_POLICY, Policy
from disque_trio.protocol.bus import MAX_NAME_IN_FIELDS
from disque_trio.protocol.keyrecord import MAX_KEY
from disque_trio.protocol.serialjob import is_job_id
from disque_trio.protocol.trailer import (
    BY_REDRIVE,
    DEATH_NAMES,
    UNTIL_START,
    Letter,
    Trailer,
)
from disque_trio.resp.ints import parse_int
from disque_trio.respserver.command import CommandError
from disque_trio.respserver.commands.arguments import SYNTAX

_NUMBERS: Final = frozenset((b"replicate", b"ttl", b"retry", b"maxlen"))
MAX_REASON: Final = 4_096  # bytes of why a job became a dead letter
_SHOWN: Final = 100  # bytes of the name of a policy in an error


class AddOptions:
    """The options of one ADDJOB.

    Attributes:
        repl: copies; 0: not given.
        retry: s; -1: not given.
        ttl: s; 0: not given.
        delay: ms; -1: until ``at``, in ms since the epoch; -1: not given.
        delayed: DELAY is given.
        maxlen, maxbytes: jobs and bytes that the queue may have; 0: no limit.
        wait: ASYNC is not given.
        trailer: options for which C Disque has no field; None: none.
        kept: FOR, in s; 0: not given.
        anyway, replace: ANYWAY and REPLACE are given. The key is in the trailer.
        until: START or END, in lower case, if UNTIL is given.
        priority: 0 to 7.
        plain: there are only options that C Disque has too, and the queue has no limit.

    Raises:
        CommandError: the options are wrong.
    """

    def __init__(self, args: list[bytes]) -> None:
        self.repl = 0
        self.delay = 0
        self.delayed = False
        self.at = -1
        self.retry = -1
        self.ttl = 0
        self.maxlen = 0
        self.maxbytes = 0
        self.wait = True
        self.trailer: Trailer | None = None
        self.kept = 0
        self.anyway = False
        self.replace = False
        self.until = b""
        self.priority = 0
        self.plain = True
        last = len(args) - 1
        i = 4
        while i <= last:
            option = args[i].lower()
            i += 1
            if option == b"async":
                self.wait = False
            elif i <= last and option in _NUMBERS:
                self._set(option, parse_int(args[i]))
                i += 1
            elif i <= last and option == b"delay":
                self.delay = parse_seconds(args[i], BAD_DELAY)
                self.delayed = True
                i += 1
            else:
                i = self._read(option, args, i)
        if not self.plain:
            self._check()

    def _read(self, option: bytes, args: list[bytes], i: int) -> int:
        """Set ``option``, which C Disque does not have, from ``args[i]`` and what follows; returns
        the index of the next option."""
        self.plain = False
        if option == b"anyway":
            self.anyway = True
            return i
        if option == b"replace":
            self.replace = True
            return i
        if i == len(args):
            raise CommandError(SYNTAX)
        if option == b"letter":
            return self._set_letter(args, i)
        if option == b"unique":
            self._set_key(args[i])
        elif option in TEXTS:
            self._set_text(option, args[i])
        elif option == b"headers":
            return self._set_headers(args, i)
        elif option == b"priority":
            self.priority = _priority(args[i])
        elif option == b"for":
            value = parse_int(args[i])
            if value is None or not 0 < value <= UINT32_MAX or self.kept:
                raise CommandError("ERR FOR must be given once, in seconds, from 1 to 4294967295")
            self.kept = value
        elif option == b"until":
            self.until = args[i].lower()
            if self.until not in (b"start", b"end"):
                raise CommandError("ERR UNTIL must be START or END")
        elif option == b"at" and self.at < 0:
            self.at = _time(args[i])
        else:
            raise CommandError(SYNTAX)
        return i + 1

    def _check(self) -> None:
        """Raise ``CommandError`` if options are incompatible."""
        if self.at >= 0:
            if self.delayed:
                raise CommandError("ERR AT and DELAY cannot be combined")
            self.delay = -1
        if (self.kept or self.anyway or self.replace or self.until) and not self.key:
            raise CommandError("ERR FOR, UNTIL, REPLACE and ANYWAY require UNIQUE")
        if self.kept and (self.until or self.replace):
            raise CommandError("ERR FOR cannot be combined with UNTIL or REPLACE")
        if self.replace and self.until == b"end":
            raise CommandError("ERR REPLACE cannot be combined with UNTIL END")
        if self.trailer is not None and (self.replace or self.until == b"start"):
            self.trailer.key_state = UNTIL_START

    def pause(self, now: int) -> int:
        """The ms from ``now`` until the job is queued."""
        return self.delay if self.delay >= 0 else max(self.at - now, 0)

    @property
    def key(self) -> bytes:
        """The key of UNIQUE; empty: not given."""
        return b"" if self.trailer is None else self.trailer.key

    def _set(self, option: bytes, value: int | None) -> None:
        """Set one of ``_NUMBERS``; ``value`` is None if its argument is not a number."""
        if option == b"retry":
            if value is None or value < 0:
                raise CommandError("ERR RETRY time must be a non negative number")
            self.retry = value
        elif option == b"ttl":
            if value is None or value < 1:
                raise CommandError("ERR TTL must be a number > 0")
            self.ttl = value
        elif option == b"replicate":
            if value is None or not 1 <= value <= UINT16_MAX:
                raise CommandError("ERR REPLICATE must be between 1 and 65535")
            self.repl = value
        else:
            self.maxlen = at_least(1, value, "ERR MAXLEN must be a positive number")
            self.plain = False

    def _set_key(self, key: bytes) -> None:
        """Set UNIQUE."""
        if self.key:
            raise CommandError("ERR UNIQUE is given twice")
        if not 0 < len(key) <= MAX_KEY:
            raise CommandError(f"ERR a key for UNIQUE must have 1 to {MAX_KEY} bytes")
        self._want_trailer().key = key

    def _set_text(self, option: bytes, text: bytes) -> None:
        """Set one of ``TEXTS``, in the attribute of its name."""
        trailer = self._want_trailer()
        name = option.decode()
        if getattr(trailer, name):
            raise CommandError(f"ERR {name.upper()} is given twice")
        what = OPTIONS[name]
        if not 0 < len(text) <= (what.most or 0):
            raise CommandError(
                f"ERR the {what.value} of a {name.upper()} must have 1 to {what.most} bytes"
            )
        setattr(trailer, name, text)

    def _set_letter(self, args: list[bytes], at: int) -> int:
        """Set LETTER, whose values begin at ``args[at]``; return the index after the last one."""
        if len(args) < at + 5:
            raise CommandError(SYNTAX)
        queue, word, number, first, reason = args[at : at + 5]
        why = DEATH_NAMES.index(word.lower()) if word.lower() in DEATH_NAMES[1:BY_REDRIVE] else 0
        attempts = parse_int(number)
        if not why:
            names = b", ".join(DEATH_NAMES[1:BY_REDRIVE]).decode()
            raise CommandError(f"ERR a LETTER died for one of {names}")
        if attempts is None or not 0 <= attempts <= UINT32_MAX:
            raise CommandError("ERR the attempts of a LETTER must be a number")
        if not is_job_id(first):
            raise CommandError(BAD_ID)
        if not 0 < len(queue) <= MAX_NAME_IN_FIELDS or len(reason) > MAX_REASON:
            raise CommandError(
                f"ERR the queue of a LETTER must have 1 to {MAX_NAME_IN_FIELDS} bytes, and its "
                f"reason at most {MAX_REASON}"
            )
        trailer = self._want_trailer()
        if trailer.letter is not None:
            raise CommandError("ERR LETTER is given twice")
        trailer.letter = Letter(first, queue, why, attempts, reason)
        return at + 5

    def _want_trailer(self) -> Trailer:
        if self.trailer is None:
            self.trailer = Trailer()
        return self.trailer

    def _set_headers(self, args: list[bytes], at: int) -> int:
        """Set HEADERS, whose count is ``args[at]``; return the index after its last value."""
        trailer = self._want_trailer()
        if trailer.headers:
            raise CommandError("ERR HEADERS is given twice")
        count = at_least(1, parse_int(args[at]), "ERR HEADERS count must be a positive number")
        if count > MAX_HEADERS:
            raise CommandError(f"ERR HEADERS may be at most {MAX_HEADERS}")
        start = at + 1
        if count > (len(args) - start) // 2:
            raise CommandError("ERR HEADERS has fewer names and values than its count says")
        end = start + 2 * count
        headers = args[start:end]
        if sum([len(text) for text in headers]) > MAX_HEADERS_SIZE:
            raise CommandError(f"ERR HEADERS are longer than {MAX_HEADERS_SIZE} bytes in total")
        if b"" in headers[::2]:
            raise CommandError("ERR the name of a header is empty")
        trailer.headers = headers
        return end


def _time(text: bytes) -> int:
    """Parse the value of AT, in ms since the epoch."""
    value = parse_int(text)
    if not text or value is None or not 0 <= value // 1000 < UINT32_MAX:
        raise CommandError("ERR AT must be a unix time in ms, before 2106")
    return value


def _priority(text: bytes) -> int:
    """Parse the value of PRIORITY."""
    value = parse_int(text)
    if not text or value is None or not 0 <= value <= MAX_PRIORITY:
        raise CommandError(f"ERR PRIORITY must be between 0 and {MAX_PRIORITY}")
    return value


NO_OPTIONS: Final = AddOptions([])


def follow(policy: Policy, options: AddOptions, now: int) -> AddOptions:
    """Return ``options``, completed from ``policy``. Raises ``CommandError`` if they are
    incompatible."""
    if policy is NO_POLICY:
        return options
    if options is NO_OPTIONS:
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
    if policy.delay and not (options.delay or options.delayed):
        options.delay = policy.delay
        if 0 < options.ttl * 1000 <= policy.delay:
            raise CommandError(
                f"ERR TTL must be greater than DELAY, which the policy of {name} sets to "
                f"{policy.delay / 1000:g}"
            )
    if policy.is_bounded():
        options.maxlen = options.maxlen or policy.maxlen
        options.maxbytes = policy.maxbytes
        options.plain = False
    if not options.ttl:
        options.ttl = policy.ttl
        if 0 < policy.ttl <= (options.pause(now) + 999) // 1000:
            raise CommandError(
                f"ERR The specified DELAY is greater than TTL, which is {policy.ttl} by the policy "
                f"of {name}. Job refused since would never be delivered"
            )
    return options
