"""Speaks to nodes about the jobs of processes that cannot: those that died, and those that do not
answer because a task lets nothing else run there. The parent has no connection before that.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Final

import trio

from disque_trio.notation.addresses import read_node
from disque_trio.respclient.connection import Connection, Connector, Reply
from disque_trio.respclient.errors import ConnectionLost, DisqueError, TlsError
from disque_trio.respclient.login import Login
from disque_trio.respclient.retry import Retry
from disque_trio.respclient.tls import Tls
from disque_trio.worker.deaths import Return
from disque_trio.worker.ledger import LedgerEntry

_PORT: Final = 7711
_TIMEOUT: Final = 2.0  # s to connect
_PATIENCE: Final = 4.0  # s; a job may be somebody else's once its retry time is over


def login_of(said: dict[str, Any]) -> Login:
    """Read how a process logs in to the nodes, as ``Child`` says it."""
    tls = said["tls"]
    return Login(**{**said, "tls": Tls(**tls) if isinstance(tls, dict) else tls})


class Keeper:
    """Gives jobs back, and keeps jobs, at the nodes that they came from.

    Args:
        nursery: runs its connections.
        login: how to log in to the nodes.
    """

    def __init__(self, nursery: trio.Nursery, login: Login) -> None:
        self._connector = Connector(nursery, login, _TIMEOUT)

    async def give_back(self, returns: Sequence[Return], *, once: bool) -> list[str]:
        """Give jobs back. ``once``: do not try again.

        Returns:
            The ids of those that no node has taken: they come again after their retry time.
        """
        commands: defaultdict[str, list[tuple[str, list[str | bytes]]]] = defaultdict(list)
        for one in returns:
            commands[one.entry.address].append((one.entry.id, _command(one)))
        left: list[str] = []

        async def send(address: str, sent: list[tuple[str, list[str | bytes]]]) -> None:
            replies = await self._ask(
                address, [command for _, command in sent], 0 if once else _PATIENCE
            )
            left.extend(
                id
                for (id, _), reply in zip(sent, replies, strict=True)
                if isinstance(reply, DisqueError)
            )

        async with trio.open_nursery() as nursery:
            for address, sent in commands.items():
                nursery.start_soon(send, address, sent)
        return left

    async def keep(self, entries: Iterable[LedgerEntry]) -> dict[str, float]:
        """Tell the nodes that somebody works on these jobs (WORKING).

        Returns:
            The retry times, in seconds, of those that the nodes keep.
        """
        ids: defaultdict[str, list[str]] = defaultdict(list)
        for entry in entries:
            ids[entry.address].append(entry.id)
        kept: dict[str, float] = {}
        for address, those in ids.items():
            replies = await self._ask(address, [["WORKING", id] for id in those], 0)
            kept |= {
                id: reply
                for id, reply in zip(those, replies, strict=True)
                if isinstance(reply, int)
            }
        return kept

    async def _ask(
        self, address: str, commands: Sequence[Sequence[str | bytes]], patience: float
    ) -> list[Reply]:
        """Send commands to the node at ``address``; errors stand in place of replies."""
        retry = Retry(patience)
        while True:
            try:
                connection = await self._open(address)
            except (DisqueError, ValueError) as error:
                lost = ConnectionLost(str(error))
                replies: list[Reply] = [lost] * len(commands)
                if isinstance(error, ValueError | TlsError):
                    return replies
            else:
                with trio.move_on_after(_TIMEOUT):
                    replies = await connection.execute_many(commands)
                    connection.close()
                    return replies
                connection.close()
                replies = [ConnectionLost("no answer in time")] * len(commands)
            if not await retry.again():
                return replies

    async def _open(self, address: str) -> Connection:
        if not address:
            raise ValueError("its node is not known")
        return await self._connector.open(read_node(address, _PORT))


def _command(one: Return) -> list[str | bytes]:
    id = one.entry.id
    if not one.reason:
        return ["ENQUEUE", id]
    return ["NACK", id, "DELAY", f"{one.delay:.3f}", "REASON", one.reason]
