"""The Trio tasks around the engine: its turns, the timers of the state machine, housekeeping, and
reports to systemd.

Turns never wait; these tasks do, where Trio sees it.
"""

import gc
import math
import time

import trio

from disque_trio.process.clock import Clock
from disque_trio.process.systemd import Notifier
from disque_trio.respserver.io.engine import Engine
from disque_trio.respserver.io.others import watch_others
from disque_trio.respserver.io.turns import take_turns

# The cyclic garbage collector stops a node with a million jobs for a second, and looking at each
# new job once costs a tenth of ADDJOB. The node itself leaves no cycles behind: everything is freed
# when it is done with. So the collector is off, and runs by hand for what libraries may leave: at
# most once a minute, and only while there is little to look at, so that it takes a few ms at most.
COLLECT_SECONDS = 60
COLLECT_MAX_JOBS = 10_000
COLLECT_MAX_OBJECTS = 25_000
# Work that becomes due all at once may take long: two seconds for a million expiring jobs. It is
# done in slices, between the turns of the clients. When it is late the slices grow, since otherwise
# a node that is always busy would never catch up.
SLICE = 0.0003  # s
PATIENCE = 5_000  # ms that due work may be late before the slices grow
GROWTH = 1e-6  # s of a slice for each further ms
LONGEST_SLICE = 0.01  # s
REPORT_SECONDS = 10
CALM = 64  # runs of the periodic work after the last event; it takes that many to tidy up
CLOCK_RIGHT = 0.005  # s by which the clock may differ from that of the machine


async def serve_ahead(engine: Engine) -> None:
    """Take turns until cancelled, waiting for clients outside Trio: see ``others``."""
    others = await watch_others()
    if others is None:
        await serve(engine)
        return
    engine.watch(others.fd)
    while True:
        take_turns(engine, others)
        await trio.lowlevel.checkpoint()


async def serve(engine: Engine) -> None:
    """Take turns until cancelled, waiting for clients like any task: if other tasks cannot be
    watched, or a test moves the clock."""
    yielded = 0
    linger = 0.0
    while True:
        if engine.poll(linger):
            linger = engine.linger
            if engine.clients.now - yielded >= engine.others_wait:
                await trio.lowlevel.checkpoint()
                yielded = engine.clients.now
        else:
            linger = 0.0
            await trio.lowlevel.wait_readable(engine.fileno())


async def flush_all(engine: Engine, seconds: float) -> None:
    """Send what is unsent, for at most ``seconds``."""
    with trio.move_on_after(seconds):
        while True:
            if not engine.send_unsent():
                return
            await trio.sleep(0.01)


def collect_garbage() -> None:
    """Free what is only kept alive by cycles, and never look at the rest again. For the start, when
    tens of thousands of objects of libraries have been created for good."""
    gc.disable()
    gc.collect()
    gc.freeze()


def slice_of(late: int) -> float:
    """The length (s) of a slice of due work, if the first of it is ``late`` ms late."""
    return min(SLICE + max(0, late - PATIENCE) * GROWTH, LONGEST_SLICE)


def collect_new_garbage(held: int) -> bool:
    """Free cycles made since the start, if that is quick.

    Args:
        held: the number of jobs, or events.

    Returns:
        whether it was done.
    """
    # Counting many objects takes a while, too.
    if held > COLLECT_MAX_JOBS or len(gc.get_objects()) > COLLECT_MAX_OBJECTS:
        return False
    gc.collect()
    return True


class RequeueTimer:
    """Calls the node's ``tick`` when something is due, in slices of time.

    Created before the engine, which calls ``wake_at`` when something is due earlier.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._scope = trio.CancelScope()
        self._due = 0

    def wake_at(self, due: int) -> None:
        """Wake up at ``due`` (ms; 0: any time) at the latest."""
        # A deadline that is too early costs one futile check; setting one costs each turn.
        if due and (due < self._due or not self._due):
            self._due = due
            self._scope.deadline = self._deadline()

    def _deadline(self) -> float:
        """The time at which to wake up, by Trio's clock."""
        if self._due == 0:
            return math.inf
        return trio.current_time() + max(self._due - self._clock.now(), 0) / 1000

    async def run(self, engine: Engine) -> None:
        """Run until cancelled."""
        linger = engine.linger
        while True:
            # Nothing is due during a large write; the turn at its end says what is.
            idle = engine.hold.on or engine.halted
            self._due = 0 if idle else engine.node.next_wake()
            with trio.CancelScope(deadline=self._deadline()) as self._scope:
                await trio.sleep_forever()
            self._do_due(engine, linger)

    def _do_due(self, engine: Engine, linger: float) -> None:
        """Do due work for the time of a slice. ``linger``: of an engine with nothing to do."""
        node = engine.node
        now = engine.clock.now()
        due = node.next_wake()
        # The file would not know what a halted node delivered.
        if not due or due > now or engine.halted or engine.hold.on:
            return
        until = time.perf_counter() + slice_of(now - due)
        while due and due <= now:
            node.tick(now)
            due = node.next_wake()
            if time.perf_counter() >= until:
                break
        # While there is more to do, the engine does not wait for silent clients.
        engine.linger = 0.0 if due and due <= now else linger
        engine.stirred = True
        engine.after_node()


def _has_work(engine: Engine) -> bool:
    """Whether something is due that is not counted, such as freeing what was flushed."""
    due = engine.node.next_wake()
    return 0 < due <= engine.clock.now()


async def run_cron(engine: Engine) -> None:
    """Run the periodic work: rates, idle clients and queues, the clock; rarely the collector.

    It runs ``hz`` times a second, while something happens and until all its consequences are done.
    Then it is put off until something happens again, or a client has been silent for too long, or
    for as long as it does no harm.
    """
    collect_at = trio.current_time() + COLLECT_SECONDS
    calm = 0  # consecutive runs in which nothing had happened
    while True:
        if trio.current_time() > collect_at and not _has_work(engine):
            collect_new_garbage(engine.node.held())
            collect_at = trio.current_time() + COLLECT_SECONDS
        ahead = engine.clock.slew()
        if abs(ahead) > 5:
            engine.log.debug("the wall clock jumped", ahead_seconds=round(ahead, 1))
        now = engine.clock.now()
        engine.stats.sample(now, engine.node.total_commands)
        engine.cron()
        calm = 0 if engine.stirred else calm + 1
        engine.stirred = False
        rest = 0
        if calm >= CALM and engine.stats.still and abs(ahead) < CLOCK_RIGHT:
            rest = engine.rest()
        period = 1 / engine.config.hz
        if rest:
            await _sleep_while_calm(engine, max(rest / 1000, period))
            engine.stats.skip(engine.clock.now() - round(period * 1000))
        else:
            await trio.sleep(period)


async def _sleep_while_calm(engine: Engine, seconds: float) -> None:
    """Sleep for ``seconds``, or until something happens."""
    woken = trio.Event()
    engine.sleepers.append(woken.set)
    with trio.move_on_after(seconds):
        await woken.wait()
    if not woken.is_set():
        engine.sleepers.remove(woken.set)


async def feed_watchdog(notifier: Notifier, engine: Engine) -> None:
    """Feed the watchdog for as long as the engine takes turns, until cancelled.

    A timer would only prove that Trio runs. So the engine is asked for a turn, and the watchdog is
    fed only if it has taken one since the last time: four times per period, so that a busy node may
    be late.
    """
    turns = engine.turns
    while True:
        engine.ask_turn()
        await trio.sleep(notifier.watchdog / 4)
        if engine.turns != turns:
            turns = engine.turns
            notifier.feed()


async def report(notifier: Notifier, engine: Engine) -> None:
    """Keep the status line up to date until the node stops."""
    while not notifier.stops:
        notifier.status(
            f"Ready: {engine.node.held()} {engine.node.holds}, {len(engine.clients.by_id)} clients"
        )
        await trio.sleep(REPORT_SECONDS)
