"""The command line client's connection: a plain blocking socket.

Owns the socket, AUTH and the protocol version. A person waits for one reply at a time, and Ctrl-C
interrupts a blocking read, so there is no need for anything asynchronous.
"""

import os
import socket
from collections.abc import Sequence

from disque_trio.cli.options import Options
from disque_trio.cli.resp import Kind, Reply, ReplyFormatError, read_reply
from disque_trio.resp.command import encode_command

TYPE_CHECKING = False  # typing is slow to import; see main
if TYPE_CHECKING:
    from disque_trio.respclient.tls import Tls

HANDSHAKE_SECONDS = 10.0
"""For the TLS handshake."""


class ConnectionFailed(Exception):
    """The node cannot be reached; the text is for the user."""


class Disconnected(Exception):
    """The node closed the connection or sent something that is not RESP; the text is for the
    user."""


class Connection:
    """A connection, ready for commands.

    Attributes:
        complaints: what went wrong with AUTH or HELLO, for the user.

    Raises:
        ConnectionFailed: the node cannot be reached.
    """

    def __init__(self, options: Options) -> None:
        try:
            self._socket = _connect(options)
        except (OSError, ValueError) as error:
            raise ConnectionFailed(
                f"Could not connect to Disque at {options.where}: {_why(options, error)}"
            ) from error
        self._encrypted = options.tls
        self._stream = self._socket.makefile("rb")
        self.complaints: list[str] = []
        try:
            if options.password is not None or options.user is not None:
                words = [options.user] if options.user is not None else []
                words.append(options.password or "")
                self._prepare("AUTH", b"AUTH", *[os.fsencode(word) for word in words])
            if options.resp3:
                self._prepare("HELLO 3", b"HELLO", b"3")
            if options.client_name is not None:
                # A user who may not run this does without a name.
                self.execute(b"CLIENT", b"SETNAME", options.client_name.encode())
        except Disconnected as error:
            self.close()
            raise ConnectionFailed(
                f"Could not connect to Disque at {options.where}: {error}"
            ) from error

    def send(self, command: Sequence[bytes]) -> None:
        """Send a command.

        Raises:
            Disconnected: the connection is lost.
        """
        try:
            self._socket.sendall(encode_command(command))
        except OSError as error:
            raise Disconnected(f"Error: {self._lost(error)}") from error

    def read(self) -> Reply:
        """Wait for the next reply.

        Raises:
            Disconnected: the connection ended, or the reply is not RESP.
        """
        try:
            return read_reply(self._stream)
        except EOFError:
            raise Disconnected("Error: Server closed the connection") from None
        except OSError as error:
            raise Disconnected(f"Error: {self._lost(error)}") from error
        except ReplyFormatError as error:
            raise Disconnected(f"Error: Protocol error, {error}") from error

    def execute(self, *command: bytes) -> Reply:
        """Send a command and wait for its reply. Raises the same errors."""
        self.send(command)
        return self.read()

    def is_stale(self) -> bool:
        """Whether the node has hung up since the last reply, or sent something unexpected."""
        try:
            # Peek at the raw socket: SSL sockets do not take flags.
            socket.socket.recv(self._socket, 1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True
        return True

    def close(self) -> None:
        """Hang up."""
        self._stream.close()
        self._socket.close()

    def _lost(self, error: OSError) -> str:
        if self._encrypted:
            from disque_trio.respclient.tls import refusal

            return refusal(error) or "Server closed the connection"
        return error.strerror or str(error)

    def _prepare(self, what: str, *command: bytes) -> None:
        reply = self.execute(*command)
        if reply.kind is Kind.ERROR:
            self.complaints.append(f"{what} failed: {reply.text.decode(errors='replace')}")


def tls_of(options: Options) -> "Tls":
    """The TLS settings in the options."""
    from disque_trio.respclient.tls import Tls

    return Tls(
        ca_file=options.cacert,
        ca_dir=options.cacertdir,
        cert_file=options.cert,
        key_file=options.key,
        server_name=options.sni,
        check_hostname=options.check_hostname,
        verify=not options.insecure,
    )


def _connect(options: Options) -> socket.socket:
    if options.socket is None:
        connected = socket.create_connection((options.host, options.port))
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return _encrypted(options, connected) if options.tls else connected
    connected = socket.socket(socket.AF_UNIX)
    try:
        connected.connect(options.socket)
    except BaseException:
        connected.close()
        raise
    return connected


def _encrypted(options: Options, connected: socket.socket) -> socket.socket:
    # Imported here: most connections do not need it, and OpenSSL is slow to load.
    from disque_trio.respclient.tls import Encryption

    with connected:  # unless it is taken over
        connected.settimeout(HANDSHAKE_SECONDS)
        secure = Encryption(tls_of(options)).wrap(connected, options.host)
        secure.settimeout(None)
        return secure


def _why(options: Options, error: OSError | ValueError) -> str:
    if options.tls:
        from disque_trio.respclient.tls import refusal

        if isinstance(error, TimeoutError):
            return "no answer during the TLS handshake"
        if text := refusal(error):
            return text
    return getattr(error, "strerror", None) or str(error)
