"""The replies of CLIENT LIST, ACL LIST and ACL USERS, which may be about ten thousand."""

from collections.abc import Iterator
from typing import Final

from disque_trio.resp.reply import Text, bulk, encode
from disque_trio.respserver.acl.user import User
from disque_trio.respserver.batches import Reading
from disque_trio.respserver.client import Client
from disque_trio.respserver.machine import Machine

_DESCRIBED: Final = 40  # units of work to describe a client
_LINE_SHIFT: Final = 4  # as long as it takes to write 16 bytes of a user's rules


class ClientLines(Reading[Client]):
    """The reply of CLIENT LIST, a single text.

    Args:
        clients: those to tell about.
    """

    __slots__ = ("_lines", "_node")

    def __init__(
        self, node: Machine, client: Client, args: list[bytes], clients: Iterator[Client]
    ) -> None:
        super().__init__(client, node.command_of(args), clients)
        self._node = node
        self._lines: list[bytes] = []

    def takes(self, item: Client) -> bool:
        if not item.gone:
            self.spent += _DESCRIBED
            self._lines.append((self._node.host.describe(item) + "\n").encode("latin-1"))
        return False  # its line is part of what the reply begins with

    def head(self, count: int) -> bytes:
        return encode(Text(b"".join(self._lines)), self.client.resp)


class UserNames(Reading[User]):
    """The reply of ACL USERS."""

    def __init__(self, node: Machine, client: Client, args: list[bytes]) -> None:
        super().__init__(client, node.command_of(args), iter(node.users.sorted()))

    def entry(self, item: User) -> bytes:
        return bulk(item.name)


class UserLines(UserNames):
    """The reply of ACL LIST."""

    def entry(self, item: User) -> bytes:
        line = item.line()
        self.spent += len(line) >> _LINE_SHIFT
        return bulk(line)
