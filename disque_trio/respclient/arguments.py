"""The command-line options for certificates, named as in redis-cli.

Does not load TLS, which ``--help`` does not need; ``tls.of_arguments`` reads the options.
"""

from collections.abc import Callable


def add_certificate_options(add: Callable[..., object]) -> None:
    """Add the options that go with ``--tls``. ``add`` is a parser's or group's ``add_argument``."""
    add("--cacert", metavar="FILE", help="CA certificates to trust (PEM)")
    add("--cert", metavar="FILE", help="client certificate (PEM)")
    add("--key", metavar="FILE", help="key of the client certificate, if in another file")
    add("--sni", metavar="NAME", help="name that the server's certificate must have")
    add("--insecure", action="store_true", help="trust any certificate")
