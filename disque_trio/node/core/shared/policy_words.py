"""Policies as words: the options of QSET, the replies of QGET, and the lines of the file.

In addition to the lines of all such files (see ``version_words``), that of policies has a line for
each node whose extensions are known::

    node 88...aa 1
"""

from collections.abc import Iterator, Sequence
from functools import partial
from operator import attrgetter
from typing import Final

from disque_trio.node.core.shared.policies import Policies, Policy
from disque_trio.node.core.shared.version_words import (
    lines_of,
    node_from,
    number_from,
    take_lines,
    take_words,
    text_of,
    whole_file,
)
from disque_trio.node.core.shared.versions import SharedError
from disque_trio.notation.rates import format_rate, read_rate
from disque_trio.policy_options import NAME, NUMBER, OPTIONS, RATE, SECONDS, WORD, PolicyOption
from disque_trio.resp.inline import quote
from disque_trio.resp.ints import parse_int, parse_ms
from disque_trio.resp.reply import Value

MAX_EXTENSIONS: Final = 65_535
_BY_WORD: Final = {option.word.encode(): option for option in OPTIONS}
# Gets what is not ``unset`` if an option is set: the last of its attributes.
_LAST: Final = attrgetter(*[[*option.fields][-1] for option in OPTIONS])
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
    seen: set[str] = set()
    at = 0
    while at < len(words):
        option = _BY_WORD.get(words[at].upper())
        if option is None:
            raise SharedError("syntax error")
        end = at + 1 + option.arity
        if end > len(words):
            raise SharedError("syntax error")
        if option.name in seen:
            raise SharedError(f"{option.word} is given twice")
        values = _values(option, words[at + 1 : end])
        for attribute, value in zip(option.fields, values, strict=True):
            setattr(policy, attribute, value)
        if option.kind in (RATE, WORD):
            policy.forget(option)
        if option.kind == RATE:
            burst = _BY_WORD[option.word.replace("RATE", "BURST").encode()]
            policy.forget(burst)
            if not values[0]:
                setattr(policy, burst.name, 0)
        seen.add(option.name)
        at = end
    problem = policy.problem()
    if problem:
        raise SharedError(problem)


def _values(option: PolicyOption, words: list[bytes]) -> Sequence[int | bytes]:
    """The values of ``option`` that ``words`` stand for. Raises ``SharedError``."""
    word = words[0]
    if option.kind == NAME:
        if len(word) <= option.most:
            return [word]
    elif option.kind == NUMBER:
        if not word:
            return [option.unset]
        number = parse_int(word)
        if number is not None and 0 <= number <= option.most:
            return [number]
    elif option.kind == SECONDS:
        times = [parse_ms(word) for word in words]
        if min(times) >= 0 and max(times) <= option.most * 1000:
            return times
    elif option.kind == RATE:
        found = read_rate(word.decode("ascii", "replace") or "0")
        if found is not None and found[0] <= option.most:
            return found if found[0] else [0, 0]
    else:
        known = [b"0", *[known.encode() for known in option.words]]
        if (word.lower() or b"0") in known:
            return [known.index(word.lower() or b"0")]
    raise SharedError(option.wanted)


def _seconds(time: int) -> bytes:
    """``time`` (ms) in seconds."""
    whole, rest = divmod(time, 1000)
    return (b"%d.%03d" % (whole, rest)).rstrip(b"0") if rest else b"%d" % whole


def describe(policy: Policy) -> dict[bytes, Value]:
    """The options of ``policy`` that are set, and the name that it was set for."""
    found: dict[bytes, Value] = {b"name": policy.name}
    for word, _, value in _values_of(policy):
        found[word.lower()] = [*value] if isinstance(value, list) else value
    return found


def _values_of(policy: Policy) -> Iterator[tuple[bytes, PolicyOption, int | bytes | list[bytes]]]:
    """The options that are set, with their words, and their values in QGET."""
    for (word, option), value in zip(_BY_WORD.items(), _LAST(policy), strict=True):
        if value == option.unset:
            continue
        if option.kind == SECONDS:
            times = [_seconds(getattr(policy, attribute)) for attribute in option.fields]
            yield word, option, times if len(times) > 1 else times[0]
        elif option.kind == RATE:
            count, period = [getattr(policy, attribute) for attribute in option.fields]
            yield word, option, format_rate(count, period).encode()
        elif option.kind == WORD:
            yield word, option, option.words[value - 1].encode()
        else:
            yield word, option, value


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
    for word, option, value in _values_of(policy):
        if isinstance(value, int):
            parts.append(b"%b %d" % (word, value))
        elif isinstance(value, list):
            parts += [word, *value]
        else:
            parts += [word, quote(value) if option.kind == NAME else value]
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
