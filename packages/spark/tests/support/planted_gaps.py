"""Jobs with incomplete event logs, for the log of ``planted_log``.

They are on separate nodes, so that nothing else is in doubt: one that is killed and restarted, one
whose log ends before the others', one without a log, and two that know nobody else, one of which
has its clock set.
"""

from __future__ import annotations

from collections.abc import Callable

from packages.spark.tests.support.planted_lines import (
    ASIDE,
    KILLED,
    RETRY,
    SET,
    SILENT,
    TTL,
    UNLOGGED,
    Lines,
)

SECOND = 1000
END = 40 * SECOND  # since the beginning: when a node is killed, and another one stops writing
BACK = 60 * SECOND  # when the killed node is back
JUMP = 20 * SECOND

Story = Callable[[Lines, int, int], str]


def plant_gaps(log: Lines, start: int, count: int) -> None:
    """Plant ``count`` jobs of each doubtful kind within a minute after ``start`` (ms)."""
    log.all_say("started", start, (KILLED, SILENT, SET, ASIDE))
    last = 0
    for number in range(max(count, 1)):
        at = last = start + 1000 + number * (END // 2) // max(count, 1)
        for node in (KILLED, SILENT):
            _done(log, at, node)
        if not count:
            continue
        for node, reason in ((KILLED, "log-gap"), (SILENT, "log-end"), (UNLOGGED, "log-missing")):
            for story in _STORIES:
                log.expect(story(log, at, node), reason)
        _forgotten(log, at)
        _restarted(log, at)
        _came_back(log, at)
        _died_elsewhere(log, at)
    for node in (KILLED, SILENT):
        _done(log, max(start + END - 2000, last + 1), node)
    _done(log, start + BACK + 5000, KILLED)
    log.close(KILLED, start + BACK)
    log.all_say("started", start + BACK, (KILLED,))
    log.all_say("stopped", start + 2 * BACK, (KILLED,))
    if count:
        _set_clock(log, start + 1000)
    if count and log.skew[2]:  # by way of a node that knows both
        pair = f"{log.nodes[2]} {log.nodes[KILLED]}"
        log.planted.setdefault(("clock-skew", ""), set()).add(pair)


def _done(log: Lines, at: int, node: int) -> None:
    """A job without a fault."""
    log.add(at, on=[node], repl=1)
    log.delivered(at + 100, node)
    log.acked(at + 500, node, [node])


def _begin(log: Lines, at: int, node: int, ttl: int = TTL, retry: int = RETRY) -> int:
    """A job that ``node`` holds or has created. Returns the node that logs it."""
    if node != UNLOGGED:
        # The node that falls silent has a copy.
        on = [0, node] if node == SILENT else [node, 0]
        return log.add(at, on=on, ttl=ttl, retry=retry)[0]
    log.new(UNLOGGED)
    peer = f',"peer":"{log.nodes[UNLOGGED]}"'
    log.say(at + 2, 0, "imported", peer + log.facts(at, 0, ttl=ttl, retry=retry))
    log.queued(at + 2, 0, "import")
    return 0


def _never_delivered(log: Lines, at: int, node: int) -> str:
    here = _begin(log, at, node)
    if here != node:  # the other one may have queued it
        log.say(at + 50, here, "dequeued", ',"reason":"command"')
    return "never-delivered"


def _not_requeued(log: Lines, at: int, node: int) -> str:
    log.delivered(at + 100, _begin(log, at, node))
    return "not-requeued"


def _never_acknowledged(log: Lines, at: int, node: int) -> str:
    here = _begin(log, at, node)
    log.delivered(at + 100, here)
    if here == node:
        log.queued(at + 200, here, "nack")
    else:  # it came back late
        log.queued(at + (3 * RETRY + 70) * SECOND, here, "retry")
    return "never-acknowledged"


def _with_worker(log: Lines, at: int, node: int) -> str:
    log.delivered(at + 100, _begin(log, at, node, retry=0))
    return "lost-with-worker"


def _expired(log: Lines, at: int, node: int) -> str:
    log.say(at + BACK, _begin(log, at, node, ttl=60), "expired")
    return "expired-undelivered"


def _expired_unacked(log: Lines, at: int, node: int) -> str:
    here = _begin(log, at, node, ttl=60)
    log.delivered(at + 100, here)
    log.say(at + BACK, here, "expired")
    return "expired-unacknowledged"


def _unseen(log: Lines, at: int, node: int) -> str:
    log.say(at + 200, _begin(log, at, node), "acked", ',"reason":"client","client":"worker-9"')
    return "acknowledged-unseen"


def _letter(log: Lines, at: int, node: int) -> str:
    if node == UNLOGGED:  # one copy is there
        log.add(at, on=[0], why="death", copies=2)
    else:
        log.add(at, on=[node], repl=1, why="death")
    return "letter-waiting"


_STORIES: tuple[Story, ...] = (
    _never_delivered,
    _not_requeued,
    _never_acknowledged,
    _with_worker,
    _expired,
    _expired_unacked,
    _unseen,
    _letter,
)


def _forgotten(log: Lines, at: int) -> None:
    """Nothing in the incomplete log of its node brought it back."""
    log.add(at, on=[KILLED], repl=1)
    log.delivered(at + 100, KILLED)
    log.delivered(at + 900, KILLED)
    log.acked(at + 950, KILLED, [KILLED])
    log.expect("delivered-twice", "log-gap")


def _restarted(log: Lines, at: int) -> None:
    """The node had learned that it is done, and was killed."""
    log.add(at, on=[0, KILLED])
    log.delivered(at + 100, 0)
    log.say(at + 200, 0, "acked", ',"reason":"client"')
    log.say(at + 202, KILLED, "acked", ',"reason":"peer"')
    log.delivered(at + 2 * BACK - 20_000, KILLED)
    log.expect("delivered-after-ack", "restart")


def _came_back(log: Lines, at: int) -> None:
    """It was delivered, and comes from a node whose log is missing."""
    holders = log.add(at, on=[0, 1])
    log.delivered(at + 100, 0)
    peer = f',"peer":"{log.nodes[UNLOGGED]}"'
    log.say(at + 900, 1, "imported", peer + log.facts(at, 1))
    log.queued(at + 900, 1, "import")
    log.delivered(at + 950, 1)
    log.acked(at + 990, 1, holders)
    log.expect("delivered-twice", "log-missing")


def _died_elsewhere(log: Lines, at: int) -> None:
    _begin(log, at, UNLOGGED)
    log.delivered(at + 100, 0)
    log.say(at + 200, 0, "dead", f',"reason":"peer","peer":"{log.nodes[UNLOGGED]}"')
    log.expect("dead", "peer")


def _set_clock(log: Lines, at: int) -> None:
    """Two nodes have jobs of each other, before and after a clock is set."""
    for now in (at, at + 2 * BACK):
        for pair in ([SET, ASIDE], [ASIDE, SET]):
            log.add(now, on=pair)
            log.delivered(now + 100, pair[0])
            log.acked(now + 500, pair[0], pair)
        log.skew[SET] = JUMP
    log.all_say("stopped", at + 3 * BACK, (SET, ASIDE))
    pair_ids = f"{log.nodes[SET]} {log.nodes[ASIDE]}"
    log.planted.setdefault(("clock-skew", "set"), set()).add(pair_ids)
