"""The options of the ``disque`` command.

Owns their names and defaults. They are parsed by hand and not by argparse, because options must end
at the first word of the command (whose arguments may begin with a dash) and match redis-cli's,
where ``-h`` is the host and ``-r -1`` repeats forever.
"""

import os
from collections.abc import Mapping, Sequence

from disque_trio.cli.format import Output
from disque_trio.cli.subcommands.table import listed

_USAGE = """\
Usage: disque [OPTIONS] [cmd [arg [arg ...]]]
  -h <hostname>      Node to connect to (default: 127.0.0.1).
  -p <port>          Its port (default: 7711).
  -s <socket>        Unix socket of the node (overrides hostname and port).
  -u <uri>           URL of the node: disque://user:password@host:port, or
                     disques:// for TLS.
  --user <name>      User to log in as (default: the default user).
  -a <password>      Password. The environment variable DISQUECLI_AUTH (or
                     REDISCLI_AUTH) does the same without exposing it.
  --no-auth-warning  Do not warn about a password on the command line.
  --tls              Connect over TLS.
  --sni <name>       Server name to send, and to expect in the certificate.
  --cacert <file>    CA certificates to trust (default: the system's).
  --cacertdir <dir>  Directory of CA certificates to trust.
  --insecure         Trust any certificate.
  --no-check-hostname
                     Accept certificates for other hosts, as redis-cli does.
  --cert <file>      Client certificate, for nodes that require one.
  --key <file>       Key of the client certificate, if in another file.
  -r <repeat>        Run the command this many times; -1 for forever.
  -i <interval>      Time between repetitions, lines of --stat, and pages of
                     --top, in seconds (2, 0.5) or as in 1m.
  -n <db>            Accepted for compatibility with redis-cli; no effect.
  -2, -3             Protocol version to use, RESP2 (default) or RESP3.
  -x                 Read the last argument of the command from stdin.
  -e                 Accepted for compatibility with redis-cli; the exit
                     status is always 1 after an error reply.
  --raw              Print raw replies (default if stdout is not a terminal).
  --no-raw           Format replies even if stdout is not a terminal.
  --csv              Print replies as CSV.
  --json             Print replies as JSON (uses RESP3 unless -2 is given).
  --stat             Print a line of counters and rates every second, or
                     every -i seconds; forever, or -r times.
  --top              Show all queues of the cluster with live rates; press ?
                     for the keys. Without a terminal: print them once, or
                     every -i seconds, -r times.
  --debug            Show the traceback of an unexpected error.
  --help             Print this help and exit.
  --version          Print the version and exit.

Subcommands, for the whole cluster (disque NAME --help shows their options):
{}
Anything else is a command for the node, also a name from this list in capital
letters. Without a command, show a prompt; or, if stdin is not a terminal, read
commands from stdin, one per line.

Exit status: 0 success; 1 an error reply, no connection, or wrong arguments;
130 stopped by SIGINT. Of check: 0 well, 1 warning, 2 critical, 3 unknown.

Examples:
  disque addjob greetings world 0
  disque getjob timeout 1000 from greetings
  disque --stat -i 5
  disque --top
  disque jobs greetings --state dead --json
"""


def usage() -> str:
    """The text for ``--help``."""
    return _USAGE.format(listed().rstrip("\n"))


class UsageError(Exception):
    """The command line is invalid; the text says why."""


class Options:
    """The options of the command line, with their defaults. If ``output`` is None, the format
    depends on whether stdout is a terminal. ``nodes``: all nodes in the URL; ``host`` and ``port``
    are those of the first."""

    host: str = "127.0.0.1"
    port: int = 7711
    socket: str | None = None
    nodes: tuple[str, ...] = ()
    client_name: str | None = None
    user: str | None = None
    password: str | None = None
    password_in_argv: bool = False
    warn: bool = True
    repeat: int = 1
    repeat_given: bool = False
    interval: float = 0.0
    resp3: bool = False
    last_from_stdin: bool = False
    output: Output | None = None
    tls: bool = False
    insecure: bool = False
    check_hostname: bool = True
    sni: str | None = None
    cacert: str | None = None
    cacertdir: str | None = None
    cert: str | None = None
    key: str | None = None
    stat: bool = False
    top: bool = False
    debug: bool = False
    help: bool = False
    version: bool = False

    def __init__(self) -> None:
        self.command: list[bytes] = []

    @property
    def where(self) -> str:
        """The node, for messages and the prompt."""
        if self.socket is not None:
            return self.socket
        from disque_trio.notation.addresses import format_address  # slow to load

        return format_address(self.host, self.port)


_WITH_VALUE = ("-h", "-p", "-s", "-a", "--pass", "-r", "-i", "-n", "-u")
_TEXTS = {  # attributes
    "--user": "user",
    "--sni": "sni",
    "--cacert": "cacert",
    "--cacertdir": "cacertdir",
    "--cert": "cert",
    "--key": "key",
}
_OF_TLS = ("sni", "cacert", "cacertdir", "cert", "key", "insecure")
_FLAGS = {  # attribute and value
    "-x": ("last_from_stdin", True),
    "--no-auth-warning": ("warn", False),
    "--stat": ("stat", True),
    "--top": ("top", True),
    "--tls": ("tls", True),
    "--insecure": ("insecure", True),
    "--no-check-hostname": ("check_hostname", False),
    "--debug": ("debug", True),
    "--help": ("help", True),
    "--version": ("version", True),
    "-v": ("version", True),
}
_OUTPUTS = {
    "--raw": Output.RAW,
    "--no-raw": Output.STANDARD,
    "--csv": Output.CSV,
    "--json": Output.JSON,
}


def parse_options(arguments: Sequence[str], environment: Mapping[str, str]) -> Options:
    """Read the command line, without the program's name.

    Raises:
        UsageError: an option is unknown, or its value is missing or invalid.
    """
    options = Options()
    options.password = environment.get("DISQUECLI_AUTH") or environment.get("REDISCLI_AUTH")
    version: int | None = None
    words = list(arguments)
    while words and words[0].startswith("-"):
        word = words.pop(0)
        if word in _WITH_VALUE or word in _TEXTS:
            if not words:
                raise UsageError(f"the option {word} needs a value")
            _set_value(options, word, words.pop(0))
        elif word in _OUTPUTS:
            options.output = _OUTPUTS[word]
        elif word in ("-2", "-3"):
            version = int(word[1:])
        elif word in _FLAGS:
            setattr(options, *_FLAGS[word])
        elif word != "-e":
            raise UsageError(f"unknown option {word}")
    if not options.tls and any(getattr(options, name) for name in _OF_TLS):
        raise UsageError("--sni, --cacert, --cacertdir, --cert, --key and --insecure need --tls")
    if options.tls and options.socket is not None:
        raise UsageError("TLS is not available on a Unix socket")
    options.resp3 = version == 3 or (version is None and options.output is Output.JSON)
    options.command = [os.fsencode(word) for word in words]
    return options


def _set_value(options: Options, word: str, value: str) -> None:
    if word in ("-h", "-p", "-s"):
        options.nodes = ()
    if word in _TEXTS:
        setattr(options, _TEXTS[word], value)
    elif word == "-u":
        _set_url(options, value)
    elif word == "-h":
        options.host = value
    elif word == "-p":
        options.port = _number(word, value)
        if not 0 < options.port < 65536:
            raise UsageError(f"the port must be from 1 to 65535, not {value}")
    elif word == "-s":
        options.socket = os.path.expanduser(value)
    elif word in ("-a", "--pass"):
        options.password, options.password_in_argv = value, True
    elif word == "-r":
        options.repeat, options.repeat_given = _number(word, value), True
    elif word == "-i":
        from disque_trio.notation.periods import EXPECTED, read_period  # slow to load

        interval = read_period(value)
        if interval is None:
            raise UsageError(f"the option {word} needs {EXPECTED}, not {value!r}")
        options.interval = interval


def _set_url(options: Options, url: str) -> None:
    # Imported here because they are slow to load.
    from disque_trio.client.nodes import parse_address
    from disque_trio.client.urls import Cluster
    from disque_trio.respclient.tls import Tls

    try:
        found = Cluster.parse(url)
    except ValueError as error:
        raise UsageError(str(error)) from None
    node = parse_address(found.nodes[0])
    options.host, options.port, options.socket = node.host, node.port, node.path or None
    options.nodes, options.client_name = found.nodes, found.client_name
    if found.password is not None:
        options.user, options.password = found.username, found.password
        options.password_in_argv = True
    if isinstance(found.tls, Tls):
        tls = found.tls
        options.tls, options.check_hostname = True, tls.check_hostname
        options.insecure = not tls.verify
        options.sni, options.cacert, options.cacertdir = tls.server_name, tls.ca_file, tls.ca_dir
        options.cert, options.key = tls.cert_file, tls.key_file


def _number(word: str, value: str) -> int:
    try:
        return int(value)
    except ValueError:
        raise UsageError(f"the option {word} needs a whole number, not {value!r}") from None
