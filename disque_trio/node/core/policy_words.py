"""Policies as words: the options of QSET, what QGET answers, and the lines of the file.

The file has a line for each policy, with its version, and one for each deletion; the words of its
lines are quoted as those of requests that are typed by hand::

    clock 17
    policy 12 1f...c0 "mail.*" ATTEMPTS 3 DEAD "mail.dead" BACKOFF 1 60
    deleted 17 1f...c0 "news" 1700000000000
    node 88...aa 1
"""

import re
from typing import Final

from disque_trio.node.core.policies import MAX_MILLISECONDS, MAX_VALUE, Policies, Policy
from disque_trio.node.core.versions import MAX_CLOCK, MAX_NAME, Entry, SharedError
from disque_trio.protocol.serialjob import NODE_ID_LENGTH
from disque_trio.resp.inline import quote, split_inline
from disque_trio.resp.ints import parse_int
from disque_trio.resp.reply import Value

MAX_REPLICATE: Final = 65_535
_SECONDS: Final = re.compile(rb"([0-9]{1,10})(?:\.([0-9]{1,9}))?")
_NODE_ID: Final = re.compile(rb"[0-9a-f]{40}")
_ABOUT: Final = b"""\
# Written by the node: the policies of queues, and the nodes that know extensions. Stop the node
# before you change it, and raise the first number (the logical time) of a policy that you change.
"""


class PolicyError(SharedError):
    """What was said of a policy is wrong; the text says why."""


def set_options(policy: Policy, words: list[bytes]) -> None:
    """Change the options of ``policy`` that ``words`` name; the others stay. An empty value, and 0
    for all but RETRY, mean that the option is not set.

    Raises:
        PolicyError: an option is unknown, given twice or wrong, or they do not go together.
    """
    seen: set[bytes] = set()
    at = 0
    while at < len(words):
        option = words[at].upper()
        values = 2 if option == b"BACKOFF" else 1
        if at + values >= len(words):
            raise PolicyError("syntax error")
        if option in seen:
            raise PolicyError(f"{option.decode()} is given twice")
        _set_option(policy, option, words[at + 1], words[at + values])
        seen.add(option)
        at += 1 + values
    problem = policy.problem()
    if problem:
        raise PolicyError(problem)


def _set_option(policy: Policy, option: bytes, value: bytes, second: bytes) -> None:
    if option == b"ATTEMPTS":
        policy.attempts = _number("ATTEMPTS", value, 0, MAX_VALUE)
    elif option == b"DEAD":
        if len(value) > MAX_NAME:
            raise PolicyError(f"DEAD must have {MAX_NAME} bytes at most")
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
    else:
        raise PolicyError("syntax error")


def _number(option: str, word: bytes, unset: int, most: int) -> int:
    if not word:
        return unset
    value = parse_int(word)
    if value is None or not 0 <= value <= most:
        raise PolicyError(f"{option} must be a number from 0 to {most}")
    return value


def _milliseconds(word: bytes) -> int:
    """The ms in a number of seconds, which may have decimals."""
    found = _SECONDS.fullmatch(word or b"0")
    if found is not None:
        whole, decimals = found.groups()
        time = int(whole) * 1000 + int(((decimals or b"") + b"000")[:3])
        if time <= MAX_MILLISECONDS:
            return time
    raise PolicyError(f"BACKOFF must be two numbers of seconds from 0 to {MAX_VALUE}")


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
    return found


# ---- the file --------------------------------------------------------------------------------


def format_file(policies: Policies, nodes: dict[bytes, int]) -> bytes:
    """The file; ``nodes`` are the extensions that other nodes announce, by id. Empty where there is
    nothing to remember."""
    lines = [_line(policies.entries[name]) for name in sorted(policies.entries)]
    lines += [b"node %b %d" % (id, nodes[id]) for id in sorted(nodes)]
    if policies.clock:
        lines.insert(0, b"clock %d" % policies.clock)
    return _ABOUT + b"\n".join(lines) + b"\n" if lines else b""


def _line(entry: Entry[Policy]) -> bytes:
    version = b"%d %b %b" % (entry.clock, entry.node, quote(entry.name))
    if entry.value is None:
        return b"deleted %b %d" % (version, entry.deleted)
    parts = [b"policy " + version]
    for option, value in describe(entry.value).items():
        if option == b"dead":
            parts.append(b"DEAD " + quote(entry.value.dead))
        elif isinstance(value, int):
            parts.append(b"%b %d" % (option.upper(), value))
        elif isinstance(value, list):
            policy = entry.value
            times = (_seconds(policy.backoff_min), _seconds(policy.backoff_max))
            parts.append(b"BACKOFF %b %b" % times)
    return b" ".join(parts)


def parse_file(text: bytes, policies: Policies) -> dict[bytes, int]:
    """Take what the file says over into ``policies``, which must be empty. Returns the extensions
    of other nodes by id.

    Raises:
        PolicyError: a line is wrong, the text says which and why.
    """
    nodes: dict[bytes, int] = {}
    for number, line in enumerate(text.split(b"\n"), 1):
        if line.lstrip().startswith(b"#"):
            continue
        words = split_inline(line)
        try:
            if words is None:
                raise PolicyError("a quote is missing")
            if words:
                _take_line(words, policies, nodes)
        except PolicyError as problem:
            raise PolicyError(f"line {number}: {problem}") from None
    return nodes


def _take_line(words: list[bytes], policies: Policies, nodes: dict[bytes, int]) -> None:
    kind, count = words[0], len(words)
    if kind == b"clock" and count == 2:
        policies.clock = max(policies.clock, _time(words[1], MAX_CLOCK))
    elif kind == b"node" and count == 3:
        nodes[_node(words[1])] = _time(words[2], MAX_REPLICATE)
    elif (kind == b"policy" and count >= 4) or (kind == b"deleted" and count == 5):
        name = words[3]
        if not 0 < len(name) <= MAX_NAME:
            raise PolicyError(f"a name must have 1 to {MAX_NAME} bytes")
        if name in policies.entries:
            raise PolicyError("the name is there twice")
        policy = None
        deleted = 0
        if kind == b"policy":
            policy = Policy(name)
            set_options(policy, words[4:])
        else:
            deleted = _time(words[4], 2**63 - 1)
        policies.put(Entry(name, policy, _time(words[1], MAX_CLOCK), _node(words[2]), deleted))
    else:
        raise PolicyError("it is none of clock, policy, deleted and node with what belongs to it")


def _time(word: bytes, most: int) -> int:
    value = parse_int(word) if word else None
    if value is None or not 0 <= value <= most:
        raise PolicyError(f"there must be a number from 0 to {most}")
    return value


def _node(word: bytes) -> bytes:
    if len(word) != NODE_ID_LENGTH or _NODE_ID.fullmatch(word) is None:
        raise PolicyError("there must be the id of a node")
    return word
