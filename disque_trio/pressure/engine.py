"""What put, get, close and delete have in common: scripts, waits, timeouts, giving back.

Owns the course of each operation and the errors it ends with. The public face is in `queue` and
`roles`.

A script may not be interrupted: it runs to its reply (`Link` sees to it), so a cancelled operation
knows whether it has happened. What it then returns is what happened, and the cancellation is seen
at the next checkpoint, as Trio's own operations do it.
"""

# ruff: noqa: ASYNC109 - a timeout here ends with an error that says what was waited for

import math
import secrets
from collections.abc import Callable, Sequence
from typing import cast

import trio
from coredis.exceptions import RedisError
from coredis.exceptions import WrongTypeError as RedisWrongTypeError
from coredis.typing import ResponseType

from disque_trio.pressure import scripts, snippets
from disque_trio.pressure.errors import (
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
from disque_trio.pressure.keys import CONSUMER, PRODUCER, PROTOCOL, SIDE, Keys
from disque_trio.pressure.scripts import MOST_BYTES, MOST_ITEMS
from disque_trio.pressure.waiting import Waits
from disque_trio.redis_link import Argument, Link, LinkLost, Script

RELEASE_SECONDS = 2.0


class Hold:
    """A role, as one operation or context has it.

    Attributes:
        role: "producer" or "consumer". uid: the client's id. number: of this hold, random.
        held: it is ours between commands. doubtful: it may be; the reply that says so was lost.
        lost: somebody else took it from us.
    """

    __slots__ = ("doubtful", "held", "lost", "number", "role", "uid")

    def __init__(self, role: str, uid: str) -> None:
        self.role = role
        self.uid = uid
        self.number = secrets.token_hex(8)
        self.held = False
        self.doubtful = False
        self.lost = False


class Engine:
    """The operations of one handle. lease: seconds."""

    def __init__(self, keys: Keys, link: Link, waits: Waits, lease: float) -> None:
        self.keys = keys
        self.name = keys.name
        self.lease_ms = max(1, round(lease * 1000))
        self._link = link
        self._waits = waits
        # Between two looks at the queue; well below the lease, which each look renews.
        self._slice = min(1.0, lease / 4)

    # Scripts and their errors

    async def run(self, script: Script, keys: list[bytes], *arguments: Argument) -> ResponseType:
        """The reply of a script.

        Raises:
            PressureConnectionError, WrongTypeError, ServerRefusedError
        """
        try:
            return await self._link.script(script, keys, list(arguments))
        except LinkLost as error:
            raise self._lost(error) from error
        except RedisError as error:
            # Servers before 7 tell the code inside of another error.
            wrong = isinstance(error, RedisWrongTypeError) or "WRONGTYPE" in str(error)
            if wrong and script is not scripts.doctor:
                await self._raise_wrong_type()
            hint = (
                "; put a part of the prefix or the name in braces" if "slot" in str(error) else ""
            )
            raise ServerRefusedError(self.name, f"queue {self.name!r}: {error}{hint}") from error

    def _lost(self, error: LinkLost) -> PressureConnectionError:
        return PressureConnectionError(
            self.name, f"queue {self.name!r}: {error}", error.maybe_executed
        )

    async def inspect(self) -> dict[str, tuple[str, str, float | None]]:
        """Type, value or length, and seconds to live (None: for ever) of each key that exists."""
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
        try:
            return await self._link.command(b"EXISTS", self.keys.bound) == 1
        except LinkLost as error:
            raise self._lost(error) from error
        except RedisError as error:
            raise ServerRefusedError(self.name, f"queue {self.name!r}: {error}") from error

    async def _raise_wrong_type(self) -> None:
        found = await self.inspect()
        for key, (_, expected) in zip(self.keys.every, PROTOCOL + SIDE, strict=True):
            kind = found.get(text(key), (expected, "", None))[0]
            if kind != expected:
                raise WrongTypeError(self.name, text(key), f"a {expected}", f"a {kind}")

    def error(self, reply: ResponseType, hold: Hold | None = None) -> PressureError:
        """The error that a reply with a code means."""
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
        self, hold: Hold, script: Script, after: str, *arguments: Argument
    ) -> ResponseType:
        """Run a script that needs a role; what becomes of the role is left to the caller."""
        mine = "1" if hold.held else "0"
        head = (hold.uid, hold.number, self.lease_ms, mine, after)
        try:
            return await self.run(script, self._keys(hold), *head, *arguments)
        except PressureConnectionError as error:
            hold.doubtful = error.maybe_executed and after != "never"
            raise

    async def take(self, hold: Hold, timeout: float | None) -> None:
        """Take the role to keep it. Raises as `get`, and QueueClosedError for a producer."""
        deadline = until(timeout)
        producer = hold.role == PRODUCER
        script = scripts.take_producer if producer else scripts.take_consumer
        await trio.lowlevel.checkpoint_if_cancelled()
        try:
            while (reply := await self._as(hold, script, "always")) != 1:
                await self._until_free(hold, reply, deadline)
        finally:
            if hold.doubtful:
                await self.release(hold)
        hold.held = True

    async def renew(self, hold: Hold) -> bool:
        """Renew the lease; False if the role is not ours any more."""
        arguments = (hold.uid, hold.number, self.lease_ms)
        if await self.run(scripts.renew, self._keys(hold), *arguments) == 1:
            return True
        hold.lost = True
        return False

    async def release(self, hold: Hold) -> None:
        """Give the role back if it is ours. Without a connection the lease does it later."""
        hold.held = hold.doubtful = False
        with trio.move_on_after(RELEASE_SECONDS) as scope:
            scope.shield = True
            try:
                await self.run(scripts.release, self._keys(hold), hold.uid, hold.number)
            except PressureError:
                pass

    async def _until_free(self, hold: Hold, reply: ResponseType, deadline: float) -> None:
        """Wait for the role if that is what the reply says; else raise what it says."""
        error = self.error(reply, hold)
        if not isinstance(error, QueueInUseError):
            raise error
        producer = hold.role == PRODUCER
        key = self.keys.producer_free if producer else self.keys.consumer_free
        await self.wait([key], deadline, error)

    async def wait(self, keys: Sequence[bytes], deadline: float, error: PressureError) -> None:
        """Wait for one of the lists for a while, at most a second; it may end early.

        Raises:
            error: there is no time left until `deadline`.
            PressureConnectionError, ServerRefusedError
        """
        left = deadline - trio.current_time()
        if left <= 0:
            raise error
        try:
            await self._waits.any(keys, min(left, self._slice))
        except LinkLost as lost:
            raise self._lost(lost) from lost
        except RedisError as refused:
            raise ServerRefusedError(self.name, f"queue {self.name!r}: {refused}") from refused

    # Elements

    async def put(
        self,
        hold: Hold,
        items: Sequence[bytes],
        timeout: float | None,
        progress: Callable[[int], object] | None = None,
    ) -> int:
        """Put all elements; gives the role back unless it was held before. See PressureQueue."""
        deadline = until(timeout)
        wait = deadline > 0
        keep = hold.held
        done = 0
        await trio.lowlevel.checkpoint_if_cancelled()
        try:
            while True:
                part = chunk(items, done)
                last = done + len(part) == len(items)
                after = "always" if keep or not last else "rest" if wait else "never"
                reply = await self._as(hold, scripts.put, after, *part)
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

    async def get(self, hold: Hold, count: int, timeout: float | None) -> list[bytes]:
        """Get up to `count` elements, at least one; role as in `put`. See PressureQueue."""
        deadline = until(timeout)
        wait = deadline > 0
        keep = hold.held
        after = "always" if keep else "rest" if wait else "never"
        await trio.lowlevel.checkpoint_if_cancelled()
        try:
            while True:
                reply = await self._as(hold, scripts.get, after, count)
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
            if (hold.held or hold.doubtful) and not keep:
                await self.release(hold)

    async def close(self, hold: Hold, timeout: float | None) -> None:
        """Close the queue; the role as in `put`."""
        deadline = until(timeout)
        after = "always" if hold.held else "never"
        await trio.lowlevel.checkpoint_if_cancelled()
        while (reply := await self._as(hold, scripts.close, after)) != 1:
            if hold.held:
                raise self.error(reply, hold)
            await self._until_free(hold, reply, deadline)

    # The queue as a whole

    async def create(self, bound: int, patience: float, force: bool) -> ResponseType:
        """Create the queue; returns the reply of the last attempt: 1, EXISTS or BUSY."""
        deadline = trio.current_time() + patience
        while True:
            reply = await self.run(scripts.create, self.keys.every, bound, "1" if force else "0")
            left = deadline - trio.current_time()
            if reply == 1 or cast("list[int]", reply)[0] == snippets.EXISTS or left <= 0:
                return reply
            # What is in the way goes without a sign that could be waited for.
            await trio.sleep(min(0.05, left))

    async def delete(self, uid: str, timeout: float | None) -> None:
        """Delete the queue once nobody has a role; taken back if that does not come in time."""
        deadline = until(timeout)
        number = secrets.token_hex(8)
        head = (uid, number, self.lease_ms)
        await trio.lowlevel.checkpoint_if_cancelled()
        reply = await self.run(scripts.delete, self.keys.every, *head, "0")
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
                reply = await self.run(scripts.delete, self.keys.every, *head, "1")
                # MISSING: another client of ours has finished it, thinking that we are dead.
                finished = reply == 1 or cast("list[int]", reply)[0] == snippets.MISSING
                if not finished and cast("list[int]", reply)[0] != snippets.WAIT:
                    finished = True
                    raise self.error(reply)
        finally:
            if not finished:
                with trio.move_on_after(RELEASE_SECONDS) as scope:
                    scope.shield = True
                    try:
                        await self.run(
                            scripts.undelete, self.keys.every, uid, number, bound, was_open
                        )
                    except PressureError:
                        pass


def until(timeout: float | None) -> float:
    """The time at which `timeout` seconds are over; 0 for a timeout of 0, that waits for nothing.

    Raises:
        ValueError: it is negative or no number.
    """
    if timeout is None:
        return math.inf
    if not timeout >= 0:
        raise ValueError(f"a timeout is a number of seconds from 0, not {timeout!r}")
    return trio.current_time() + timeout if timeout > 0 else 0.0


def chunk(items: Sequence[bytes], start: int) -> Sequence[bytes]:
    """As many of `items` from `start` on as go into one script; one at least, if there is one."""
    size = 0
    for end in range(start, min(len(items), start + MOST_ITEMS)):
        size += len(items[end])
        if size > MOST_BYTES:
            return items[start : max(end, start + 1)]
    return items[start : start + MOST_ITEMS]


def text(value: bytes) -> str:
    """Bytes of Redis for people."""
    return value.decode("utf-8", "backslashreplace")
