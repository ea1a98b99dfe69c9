"""Connections that wait, in a line for each user."""

from disque_trio.respserver.acl.user import User
from disque_trio.respserver.io.connection import Connection


class Lines:
    """Connections that wait until they are served.

    Attributes:
        members: all of them, with the user in whose line each is; None: its user has no rate.
        by_user: the lines, none of which is empty, in the order in which they are served.
    """

    def __init__(self) -> None:
        self.members: dict[Connection, User | None] = {}
        self.by_user: dict[User | None, dict[Connection, None]] = {}

    def put(self, connection: Connection) -> None:
        """Append ``connection`` to the line of its user, unless it waits already."""
        if connection in self.members:
            return
        client = connection.client
        user = client.user if client.paced else None
        self.members[connection] = user
        line = self.by_user.get(user)
        if line is None:
            line = self.by_user[user] = {}
        line[connection] = None

    def drop(self, connection: Connection) -> None:
        """Take ``connection`` out, if it waits."""
        if connection not in self.members:
            return
        user = self.members.pop(connection)
        line = self.by_user[user]
        del line[connection]
        if not line:
            del self.by_user[user]

    def pass_on(self, user: User | None) -> None:
        """Serve all other lines before that of ``user``."""
        line = self.by_user.pop(user, None)
        if line is not None:
            self.by_user[user] = line
