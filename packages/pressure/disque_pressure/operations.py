"""Runs put, get, close and delete: scripts, waits, timeouts, and giving back roles.

Owns the course of each operation and the errors it ends with. The public interface is in ``queue``
and ``roles``.

A script must not be interrupted. A cancelled operation therefore waits for the script's reply
(``RedisConnection`` takes care of that), and so knows whether the script ran. It then returns what
happened, and the next checkpoint raises the cancellation, as in Trio's own operations. If Redis
does not reply, the wait is given up ``GRACE_SECONDS`` after the cancellation or the end of the
timeout. A role that the script may have taken is then given back in the background, and elements of
a get are kept for the next get (``late``).
"""

import math
import secrets
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, cast

import trio

from disque_pressure import scripts, snippets
from disque_pressure.deadlines import patience, until
from disque_pressure.errors import (
    PressureConnectionError,
    PressureError,
    QueueBusyError,
    QueueClosedError,
    QueueDoesNotExistError,
    QueueEmptyError,
    QueueFullError,
    QueueInUseError,
    RoleLostError,
    ServerRefusedError,
    WrongTypeError,
)
from disque_pressure.hold import Hold
from disque_pressure.keys import CONSUMER, PRODUCER, PROTOCOL, SIDE, Keys, text
from disque_pressure.late import LateElements
from disque_pressure.waiting import Waits
from disque_trio.redis.connection import GRACE_SECONDS, Late, RedisConnection
from disque_trio.redis.errors import RedisError, RedisUnavailable
from disque_trio.redis.script import Script
from disque_trio.resp.command import Argument
from disque_trio.respclient.concurrency import Nursery
from disque_trio.respclient.connection import Reply


class Operations:
    """The operations of one handle. Its connections live as long as ``nursery``; ``lease`` is in s.

    Attributes:
        late: elements that arrived after their get had ended.
    """

    def __init__(
        self, keys: Keys, nursery: Nursery, redis: RedisConnection, waits: Waits, lease: float
    ) -> None:
        self.keys = keys
        self.nursery = nursery
        self.name = keys.name
        self.lease_ms = max(1, round(lease * 1000))
        self._redis = redis
        self._waits = waits
        self.late = LateElements(nursery, redis)
        # Seconds between two looks at the queue; well below the lease, which each look renews.
        self._slice = min(1.0, lease / 4)

    # Scripts and their errors

    async def run(
        self,
        script: Script,
        keys: list[bytes],
        *arguments: Argument,
        deadline: float = math.inf,
        late: Late | None = None,
    ) -> Reply:
        """Run a script and return its reply, waiting little longer than until ``deadline``. For
        ``late`` see ``RedisConnection.command``.

        Raises:
            PressureConnectionError, WrongTypeError, ServerRefusedError
        """
        with self._translated(many_keys=True):
            try:
                limit = patience(deadline)
                return await self._redis.script(script, keys, list(arguments), limit, late)
            except RedisError as error:
                # Servers before version 7 put the code inside of another error.
                if "WRONGTYPE" in error.text and script is not scripts.doctor:
                    await self._raise_wrong_type()
                raise

    @contextmanager
    def _translated(self, many_keys: bool = False) -> Iterator[None]:
        """Translate the errors of Redis, and of the connection to it, into those of the queue. With
        ``many_keys``, the command's keys could be in several slots."""
        try:
            yield
        except RedisUnavailable as error:
            why = f"queue {self.name!r}: {error}"
            raise PressureConnectionError(self.name, why, error.maybe_executed) from error
        except RedisError as error:
            why = f"queue {self.name!r}: {error}"
            if many_keys and "slot" in str(error):
                why += "; put a part of the prefix or the name in braces"
            raise ServerRefusedError(self.name, why) from error

    async def inspect(self) -> dict[str, tuple[str, str, float | None]]:
        """Return type, value or length, and seconds to live (None: forever) of existing keys."""
        rows = cast(
            "list[tuple[int, bytes, bytes, int]]",
            await self.run(scripts.doctor, self.keys.every),
        )
        return {
            text(self.keys.every[index]): (text(kind), text(value), ms / 1000 if ms >= 0 else None)
            for index, kind, value, ms in rows
        }

    async def exists(self) -> bool:
        """Whether the queue exists."""
        with self._translated():
            return await self._redis.command(b"EXISTS", self.keys.bound) == 1

    async def _raise_wrong_type(self) -> None:
        found = await self.inspect()
        for key, (_, expected) in zip(self.keys.every, PROTOCOL + SIDE, strict=True):
            kind = found.get(text(key), (expected, "", None))[0]
            if kind != expected:
                raise WrongTypeError(self.name, text(key), f"a {expected}", f"a {kind}")

    def error(self, reply: Reply, hold: Hold | None = None) -> PressureError:
        """Return the error that a reply with a code stands for."""
        code, *rest = cast("list[bytes | int]", reply)
        words = [text(word) for word in rest if isinstance(word, bytes)]
        if hold is not None and code in (snippets.MISSING, snippets.LOST):
            hold.held = False
        if code == snippets.MISSING:
            return QueueDoesNotExistError(self.name)
        if code == snippets.CLOSED:
            return QueueClosedError(self.name)
        if code == snippets.BUSY:
            return QueueBusyError(self.name, words)
        if code == snippets.NOT_A_NUMBER:
            return WrongTypeError(self.name, words[0], "a number from 0", repr(words[1]))
        assert hold is not None
        if code == snippets.IN_USE:
            return QueueInUseError(self.name, words[0], hold.role)
        hold.lost = True
        return RoleLostError(self.name, hold.role)

    # Roles

    def _keys(self, hold: Hold) -> list[bytes]:
        return self.keys.for_put if hold.role == PRODUCER else self.keys.for_get

    async def _as(
        self,
        hold: Hold,
        script: Script,
        after: str,
        deadline: float,
        *arguments: Argument,
        late: Late | None = None,
    ) -> Reply:
        """Run a script that needs a role. The caller decides what becomes of the role."""
        mine = "1" if hold.held else "0"
        head = (hold.uid, hold.number, self.lease_ms, mine, after)
        try:
            keys = self._keys(hold)
            return await self.run(script, keys, *head, *arguments, deadline=deadline, late=late)
        except PressureConnectionError as error:
            hold.doubtful = error.maybe_executed and after != "never"
            raise
        except trio.Cancelled:
            hold.doubtful = self._redis.silent and after != "never"
            raise

    async def take(self, hold: Hold, timeout: float | None) -> None:
        """Take the role and keep it. Raises as ``get``; for a producer also QueueClosedError."""
        deadline = until(timeout)
        producer = hold.role == PRODUCER
        script = scripts.take_producer if producer else scripts.take_consumer
        await trio.lowlevel.checkpoint_if_cancelled()
        try:
            while (reply := await self._as(hold, script, "always", deadline)) != 1:
                await self._until_free(hold, reply, deadline)
        finally:
            if hold.doubtful:
                await self.release(hold)
        hold.held = True

    async def renew(self, hold: Hold) -> bool:
        """Renew the lease; return False if the role is no longer ours."""
        arguments = (hold.uid, hold.number, self.lease_ms)
        if await self.run(scripts.renew, self._keys(hold), *arguments) == 1:
            return True
        hold.lost = True
        return False

    async def release(self, hold: Hold) -> None:
        """Give the role back if it is ours. Without a connection, its lease expires later."""
        hold.held = hold.doubtful = False
        await self._mend(scripts.release, self._keys(hold), hold.uid, hold.number)

    async def _mend(self, script: Script, keys: list[bytes], *arguments: Argument) -> None:
        """Run a script that gives something back, even if this task is cancelled. If Redis does not
        reply, it goes on in the background as long as the handle is open."""
        ended = trio.Event()

        async def repair() -> None:
            try:
                await self.run(script, keys, *arguments)
            except PressureError:
                pass
            finally:
                ended.set()

        try:
            self.nursery.start_soon(repair)
        except RuntimeError:  # the handle is closed
            return
        with trio.move_on_after(0 if self._redis.silent else GRACE_SECONDS, shield=True):
            await ended.wait()

    async def _until_free(self, hold: Hold, reply: Reply, deadline: float) -> None:
        """Wait for the role if ``reply`` says that it is in use; else raise the reply's error."""
        error = self.error(reply, hold)
        if not isinstance(error, QueueInUseError):
            raise error
        producer = hold.role == PRODUCER
        key = self.keys.producer_free if producer else self.keys.consumer_free
        await self.wait([key], deadline, error)

    async def wait(self, keys: Sequence[bytes], deadline: float, error: PressureError) -> None:
        """Wait for one of the lists, for a second at most. May return early.

        Raises:
            error: ``deadline`` has passed.
            PressureConnectionError, ServerRefusedError
        """
        left = deadline - trio.current_time()
        if left <= 0:
            raise error
        with self._translated():
            await self._waits.any(keys, min(left, self._slice))

    # Elements

    async def put(
        self,
        hold: Hold,
        items: Sequence[bytes],
        timeout: float | None,
        progress: Callable[[int], object] | None = None,
        *,
        reply_by: float = 0,
    ) -> int:
        """Put all elements. Gives the role back unless it was held before. See PressureQueue. Until
        ``reply_by`` (on Trio's clock) Redis may take to reply, even after the timeout."""
        deadline = until(timeout)
        replied = max(deadline, reply_by)
        wait = deadline > 0
        keep = hold.held
        done = 0
        await trio.lowlevel.checkpoint_if_cancelled()
        try:
            while True:
                part = scripts.chunk(items, done)
                last = done + len(part) == len(items)
                after = "always" if keep or not last else "rest" if wait else "never"
                reply = await self._as(hold, scripts.put, after, replied, *part)
                if isinstance(reply, int):
                    done += reply
                    if progress is not None and reply:
                        progress(done)
                    whole = reply == len(part)
                    hold.held = after == "always" or (after == "rest" and not whole)
                    if done == len(items):
                        return done
                    if not whole:
                        full = QueueFullError(self.name)
                        await self.wait([self.keys.not_full], deadline, full)
                elif hold.held:
                    raise self.error(reply, hold)
                else:
                    await self._until_free(hold, reply, deadline)
        except PressureError as error:
            error.done = done
            raise
        finally:
            if (hold.held or hold.doubtful) and not keep:
                await self.release(hold)

    async def get(
        self, hold: Hold, count: int, timeout: float | None, *, patient: bool = False
    ) -> list[bytes]:
        """Get up to ``count`` elements, at least one; role as in ``put``. See PressureQueue. With
        ``patient``, wait for Redis's reply whatever the timeout is, and drop elements that arrive
        after this call has ended."""
        deadline = until(timeout)
        replied = math.inf if patient else deadline
        wait = deadline > 0
        keep = hold.held
        after = "always" if keep else "rest" if wait else "never"
        late = None if patient else partial(self._expect, hold, after)
        await trio.lowlevel.checkpoint_if_cancelled()
        try:
            while True:
                if late and (kept := await self._kept(count, deadline)):
                    return kept
                reply = await self._as(hold, scripts.get, after, replied, count, late=late)
                items = cast("list[bytes]", reply)
                if items and not isinstance(items[0], bytes):
                    if hold.held:
                        raise self.error(reply, hold)
                    await self._until_free(hold, reply, deadline)
                    continue
                hold.held = after == "always" or (after == "rest" and not items)
                if items:
                    return items
                lists = (self.keys.data, self.keys.closed)
                await self.wait(lists, deadline, QueueEmptyError(self.name))
        finally:
            if (hold.held or hold.doubtful) and not keep and not hold.awaited:
                await self.release(hold)

    async def _kept(self, count: int, deadline: float) -> list[bytes]:
        if not self.late.any:
            return []
        with self._translated():
            return await self.late.get(count, patience(deadline))

    def _expect(self, hold: Hold, after: str, reply: Coroutine[Any, Any, Reply]) -> None:
        """Keep elements that arrive late for the next get, and give back a role taken with them."""
        hold.awaited = True
        release = partial(self.release, hold) if after == "rest" else None
        self.late.expect(reply, release)

    async def close(self, hold: Hold, timeout: float | None) -> None:
        """Close the queue; the role as in ``put``."""
        deadline = until(timeout)
        after = "always" if hold.held else "never"
        await trio.lowlevel.checkpoint_if_cancelled()
        while (reply := await self._as(hold, scripts.close, after, deadline)) != 1:
            if hold.held:
                raise self.error(reply, hold)
            await self._until_free(hold, reply, deadline)

    # The queue as a whole

    async def create(self, bound: int, patience: float, force: bool) -> Reply:
        """Create the queue; return the reply to the last attempt: 1, EXISTS or BUSY."""
        deadline = trio.current_time() + patience
        while True:
            reply = await self.run(scripts.create, self.keys.every, bound, "1" if force else "0")
            left = deadline - trio.current_time()
            if reply == 1 or cast("list[int]", reply)[0] == snippets.EXISTS or left <= 0:
                return reply
            # Nothing signals that the keys in the way are gone.
            await trio.sleep(min(0.05, left))

    async def delete(self, uid: str, timeout: float | None) -> None:
        """Delete the queue once nobody has a role. Undone if that takes longer than ``timeout``."""
        deadline = until(timeout)
        number = secrets.token_hex(8)
        head = (uid, number, self.lease_ms)
        await trio.lowlevel.checkpoint_if_cancelled()
        reply = await self.run(scripts.delete, self.keys.every, *head, "0", deadline=deadline)
        if reply == 1:
            return
        if cast("list[int]", reply)[0] != snippets.WAIT:
            raise self.error(reply)
        bound, was_open = cast("list[bytes]", reply)[3:5]
        finished = False
        try:
            while not finished:
                _, no_producer, user, *_ = cast("tuple[int, int, bytes]", reply)
                role = PRODUCER if no_producer else CONSUMER
                free = self.keys.producer_free if no_producer else self.keys.consumer_free
                await self.wait([free], deadline, QueueInUseError(self.name, text(user), role))
                reply = await self.run(
                    scripts.delete, self.keys.every, *head, "1", deadline=deadline
                )
                # MISSING: another of our clients took us for dead, and finished the deletion.
                finished = reply == 1 or cast("list[int]", reply)[0] == snippets.MISSING
                if not finished and cast("list[int]", reply)[0] != snippets.WAIT:
                    finished = True
                    raise self.error(reply)
        finally:
            if not finished:
                await self._mend(scripts.undelete, self.keys.every, uid, number, bound, was_open)
