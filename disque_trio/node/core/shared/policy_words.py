"""Policies as words: the options of QSET, the replies of QGET, and the lines of the file.

In addition to the lines of all such files (see ``version_words``), that of policies has a line for
each node whose extensions are known::

    node 88...aa 1
"""

import re
from collections.abc import Iterator
from functools import partial
from typing import Final

from disque_trio.node.core.shared.policies import (
    MAX_BYTES,
    MAX_MILLISECONDS,
    MAX_REPLICATE,
    MAX_VALUE,
    Policies,
    Policy,
)
from disque_trio.node.core.shared.version_words import (
    lines_of,
    node_from,
    number_from,
    take_lines,
    take_words,
    text_of,
    whole_file,
)
from disque_trio.node.core.shared.versions import MAX_NAME, SharedError
from disque_trio.notation.rates import format_rate, read_rate
from disque_trio.resp.inline import quote
from disque_trio.resp.ints import parse_int
from disque_trio.resp.reply import Value

MAX_EXTENSIONS: Final = 65_535
GROUPS_WORDS: Final = [b"", b"fair", b"fifo"]  # by the value of ``Policy.groups``
_SECONDS: Final = re.compile(rb"([0-9]{1,10})(?:\.([0-9]{1,9}))?")
_ABOUT: Final = b"""\
# Written by the node: the policies of queues, and the nodes that know extensions. Stop the node
# before you change it, and raise the first number (the logical time) of a policy that you change.
"""


def set_options(policy: Policy, words: list[bytes]) -> None:
    """Change the options of ``policy`` that ``words`` name; the others stay. An empty value, and
    except for RETRY 0 too, means that the option is not set.

    Raises:
        SharedError: an option is unknown, repeated or wrong, or the options cannot be combined.
    """
    seen: set[bytes] = set()
    at = 0
    while at < len(words):
        option = words[at].upper()
        values = 2 if option == b"BACKOFF" else 1
        if at + values >= len(words):
            raise SharedError("syntax error")
        if option in seen:
            raise SharedError(f"{option.decode()} is given twice")
        _set_option(policy, option, words[at + 1], words[at + values])
        seen.add(option)
        at += 1 + values
    problem = policy.problem()
    if problem:
        raise SharedError(problem)


def _set_option(policy: Policy, option: bytes, value: bytes, second: bytes) -> None:  # noqa: C901
    if option == b"ATTEMPTS":
        policy.attempts = _number("ATTEMPTS", value, 0, MAX_VALUE)
    elif option == b"DEAD":
        if len(value) > MAX_NAME:
            raise SharedError(f"DEAD must have {MAX_NAME} bytes at most")
        policy.dead = value
    elif option == b"BACKOFF":
        policy.backoff_min = _milliseconds(value)
        policy.backoff_max = _milliseconds(second)
    elif option == b"DEADTTL":
        policy.dead_ttl = _number("DEADTTL", value, 0, MAX_VALUE)
    elif option == b"TTL":
        policy.ttl = _number("TTL", value, 0, MAX_VALUE)
    elif option == b"RETRY":
        policy.retry = _number("RETRY", value, -1, MAX_VALUE)
    elif option == b"REPLICATE":
        policy.replicate = _number("REPLICATE", value, 0, MAX_REPLICATE)
    elif option == b"MAXLEN":
        policy.maxlen = _number("MAXLEN", value, 0, MAX_VALUE)
    elif option == b"MAXBYTES":
        policy.maxbytes = _number("MAXBYTES", value, 0, MAX_BYTES)
    elif option == b"RATE":
        policy.rate, policy.period = _rate(value)
        policy.forget_rate()
        if not policy.rate:
            policy.burst = 0
    elif option == b"BURST":
        policy.burst = _number("BURST", value, 0, MAX_VALUE)
    elif option == b"ACTIVE":
        policy.active = _number("ACTIVE", value, 0, MAX_VALUE)
    elif option == b"GROUPS":
        word = value.lower()
        if word not in GROUPS_WORDS and word != b"0":
            raise SharedError("GROUPS must be fair or fifo")
        policy.groups = 0 if word == b"0" else GROUPS_WORDS.index(word)
        policy.forget_groups()
    else:
        raise SharedError("syntax error")


def _number(option: str, word: bytes, unset: int, most: int) -> int:
    if not word:
        return unset
    value = parse_int(word)
    if value is None or not 0 <= value <= most:
        raise SharedError(f"{option} must be a number from 0 to {most}")
    return value


def _rate(word: bytes) -> tuple[int, int]:
    """The jobs and seconds that ``word``, such as ``50/s``, stands for; 0 and 0: no limit."""
    found = read_rate(word.decode("ascii", "replace") or "0")
    if found is None or found[0] > MAX_VALUE:
        raise SharedError(
            f"RATE must be a number from 0 to {MAX_VALUE} with /s, /m or /h behind it"
        )
    return found if found[0] else (0, 0)


def _rate_word(policy: Policy) -> bytes:
    """The RATE of ``policy`` as a word."""
    return format_rate(policy.rate, policy.period).encode()


def _milliseconds(word: bytes) -> int:
    """The ms in a decimal number of seconds."""
    found = _SECONDS.fullmatch(word or b"0")
    if found is not None:
        whole, decimals = found.groups()
        time = int(whole) * 1000 + int(((decimals or b"") + b"000")[:3])
        if time <= MAX_MILLISECONDS:
            return time
    raise SharedError(f"BACKOFF must be two numbers of seconds from 0 to {MAX_VALUE}")


def _seconds(time: int) -> bytes:
    """``time`` (ms) in seconds."""
    whole, rest = divmod(time, 1000)
    return (b"%d.%03d" % (whole, rest)).rstrip(b"0") if rest else b"%d" % whole


def describe(policy: Policy) -> dict[bytes, Value]:
    """The options of ``policy`` that are set, and the name that it was set for."""
    found: dict[bytes, Value] = {b"name": policy.name}
    if policy.attempts:
        found[b"attempts"] = policy.attempts
    if policy.dead:
        found[b"dead"] = policy.dead
    if policy.backoff_max:
        found[b"backoff"] = [_seconds(policy.backoff_min), _seconds(policy.backoff_max)]
    if policy.dead_ttl:
        found[b"deadttl"] = policy.dead_ttl
    if policy.ttl:
        found[b"ttl"] = policy.ttl
    if policy.retry >= 0:
        found[b"retry"] = policy.retry
    if policy.replicate:
        found[b"replicate"] = policy.replicate
    if policy.maxlen:
        found[b"maxlen"] = policy.maxlen
    if policy.maxbytes:
        found[b"maxbytes"] = policy.maxbytes
    if policy.rate:
        found[b"rate"] = _rate_word(policy)
    if policy.burst:
        found[b"burst"] = policy.burst
    if policy.active:
        found[b"active"] = policy.active
    if policy.groups:
        found[b"groups"] = GROUPS_WORDS[policy.groups]
    return found


# ---- the file --------------------------------------------------------------------------------


def format_file(policies: Policies, nodes: dict[bytes, int]) -> Iterator[bytes]:
    """The contents of the file, in pieces (see ``whole_file``); ``nodes``: the extensions that
    other nodes announce, by id."""
    lines = [b"node %b %d" % (id, nodes[id]) for id in sorted(nodes)]
    return whole_file(policies, _ABOUT, lines, partial(format_changes, policies))


def format_changes(policies: Policies, names: list[bytes]) -> bytes:
    """What to append to the file after changes of ``names``."""
    return text_of(lines_of(policies, b"policy", _words, names))


def _words(policy: Policy) -> list[bytes]:
    parts: list[bytes] = []
    for option, value in describe(policy).items():
        if option == b"dead":
            parts.append(b"DEAD " + quote(policy.dead))
        elif option == b"groups":
            parts.append(b"GROUPS " + GROUPS_WORDS[policy.groups])
        elif option == b"rate":
            parts.append(b"RATE " + _rate_word(policy))
        elif isinstance(value, int):
            parts.append(b"%b %d" % (option.upper(), value))
        elif isinstance(value, list):
            times = (_seconds(policy.backoff_min), _seconds(policy.backoff_max))
            parts.append(b"BACKOFF %b %b" % times)
    return parts


def parse_file(text: bytes, policies: Policies, nodes: dict[bytes, int]) -> list[str]:
    """Read the file ``text`` into ``policies``, which must be empty, and the extensions of other
    nodes, by id, into ``nodes``. Return the lines that had to be skipped (see ``take_lines``)."""

    def take(words: list[bytes], later: bool) -> None:
        if words[0] == b"node" and len(words) == 3:
            nodes[node_from(words[1])] = number_from(words[2], MAX_EXTENSIONS)
        elif not take_words(words, later, policies, b"policy", _read):
            raise SharedError("expected clock, policy, deleted or node, followed by its values")

    return take_lines(text, take)


def _read(name: bytes, words: list[bytes]) -> Policy:
    policy = Policy(name)
    set_options(policy, words)
    return policy
