"""Scans with a cursor: QSCAN and JSCAN."""

from collections.abc import AsyncGenerator

from disque_trio.client import replies
from disque_trio.client.router import Router
from disque_trio.client.session import Session
from disque_trio.resp.command import Argument
from disque_trio.respclient.connection import Reply
from disque_trio.respclient.errors import ConnectionLost


async def scan(router: Router, command: str, options: list[Argument]) -> AsyncGenerator[Reply]:
    """Yield all elements of a scan, page by page.

    If the client moves to another node meanwhile, the scan begins again there, since a cursor is
    only valid on its own node.

    Raises:
        ConnectionLost: no node could be reached in time.
    """
    session: Session | None = None
    cursor: Argument = 0
    retry = router.retry()
    while True:
        now_at = await router.session(retry)
        if now_at is not session:
            session, cursor = now_at, 0
        connection = await session.connection("control")
        try:
            reply = await connection.execute(command, cursor, *options)
        except ConnectionLost:
            if not await retry.again():
                raise
            continue
        retry = router.retry()
        cursor, page = replies.page(reply)
        for element in page:
            yield element
        if cursor == b"0":
            return
