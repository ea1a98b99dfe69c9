"""The interface between commands and the process around the state machine.

``Host`` is the interface. Its defaults are those of a node without a process, as tests and
simulations use it; the server overrides what it can do.
"""

from collections.abc import Callable
from typing import Final

from disque_trio.respserver.acl.user import User
from disque_trio.respserver.client import Client

NO_ACL_FILE: Final = (
    "ERR This server is not configured to use an ACL file. You may want to specify users via the "
    "ACL SETUSER command and then issue a CONFIG REWRITE (assuming you have a configuration file "
    "set) in order to store users in the configuration."
)
NO_DEBUG: Final = (
    "ERR DEBUG command not allowed. If the enable-debug-command option is set to "
    '"local", you can run it from a local connection, otherwise you need to set this '
    "option in the configuration file, and then restart the server."
)


class Host:
    """The process that the state machine runs in."""

    def clients(self) -> list[Client]:
        """Return all connected clients, oldest first."""
        return []

    def address(self, client: Client) -> str:
        """The address of ``client``: ``ip:port`` or ``path:0``."""
        return "?:0"

    def over_tls(self, client: Client) -> bool:
        """Whether ``client`` is connected over TLS."""
        return False

    def describe(self, client: Client) -> str:
        """The line of CLIENT LIST for ``client``, without line end."""
        return f"id={client.id} name={client.name.decode('latin-1')} cmd={client.last_command}"

    def close(self, client: Client) -> None:
        """Disconnect ``client``; if it is the one being served, after its reply."""

    def most_replies(self, client: Client) -> int:
        """How many bytes of replies ``client`` may have unread at any time; 0: any number."""
        return 0

    def held_by(self, user: User) -> int:
        """How many bytes of replies that wait, and of unfinished requests, the clients of ``user``
        have, if there is a limit for that."""
        return 0

    def limit_reached(self, text: str) -> None:
        """Log that a user has reached a limit of its budget: the error ``text``."""

    def did(self, client: Client, what: str, about: bytes = b"", jobs: int = 0) -> None:
        """Log that ``client`` has done ``what`` (see ``health.deeds``) to the queue, or node,
        ``about``, and how many ``jobs`` it named."""

    def pause(self, milliseconds: int) -> None:
        """Serve no client for this time."""

    def ip(self, client: Client) -> str:
        """The IP address of ``client``; empty: it uses a unix socket on this machine, or has
        none."""
        return ""

    def entropy(self, count: int) -> bytes:
        """Random bytes that nobody can guess."""
        raise NotImplementedError

    def users_changed(self) -> None:
        """Handle that clients may have become authenticated."""

    def load_users(self) -> str | None:
        """Read the users from their file again; return the text of the error reply, or None."""
        return NO_ACL_FILE

    def save_users(self) -> str | None:
        """Write the users to their file; return the text of the error reply, or None."""
        return NO_ACL_FILE

    def time_us(self) -> int | None:
        """The wall clock in µs since the epoch; None: there is only the node's time."""
        return None

    def info(self) -> "dict[str, dict[str, str | int | float]]":
        """Sections and fields of INFO that the process knows: server, clients, persistence ..."""
        return {}

    def config_get(self, patterns: list[bytes]) -> list[tuple[bytes, bytes]]:
        """Names and values of the parameters that match one of the glob patterns."""
        return []

    def config_set(
        self, pairs: list[tuple[bytes, bytes]], client: Client | None = None
    ) -> str | None:
        """Set all or none; return the text of the error reply, or None. ``client``: who asks;
        None: the operator, who may set everything that can be set."""
        return "ERR Unsupported CONFIG parameter: " + pairs[0][0].decode("utf-8", "replace")

    def config_rewrite(self) -> str | None:
        """Write the settings to their file; return the text of the error reply, or None."""
        return "ERR The server is running without a config file"

    def reset_stats(self) -> None:
        """Set the counters of INFO stats to zero."""

    def shutdown(self, rewrite_aof: bool) -> str | None:
        """Stop serving and end the process cleanly; first write all jobs to a new append-only file,
        if ``rewrite_aof``. Return the text of the error reply if that failed."""
        return None

    def begin_restart(self, client: Client) -> bool:
        """Begin to restart all processes of the server, if ``client`` means these; it gets an error
        if that fails."""
        return False

    def begin_shutdown(self, client: Client) -> bool:
        """Begin to write the jobs of all processes of the server, and then to end them, if there
        are several; likewise."""
        return False

    def restart(self) -> str | None:
        """Stop serving, write all jobs and queues, and start a new process that continues with
        them. Return the text of the error reply if that failed."""
        return None

    def rewrite_aof(self) -> str | None:
        """Compact the append-only file soon; return the text of the error reply, or None."""
        return "ERR there is no append-only file"

    def may_debug(self, client: Client) -> bool:
        """Whether ``client`` may use DEBUG."""
        return True

    def look_up(self, name: str, found: Callable[[list[str]], None]) -> None:
        """Look up the IP addresses of the host ``name`` in the background, and call ``found`` with
        them between turns; with none if it has none or no server answers."""
        found([])

    def sleep(self, seconds: float) -> None:
        """Block the process for this time (DEBUG SLEEP)."""

    def crash(self, restart: bool, delay: int) -> None:
        """End at once without any cleanup; with ``restart``, the process replaces itself with a new
        one ``delay`` ms later."""
