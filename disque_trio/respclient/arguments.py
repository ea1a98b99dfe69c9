"""The options for certificates of command lines, as redis-cli has them.

Loads no TLS, which ``--help`` does not need: ``tls.of_arguments`` reads what was given.
"""

from collections.abc import Callable


def add_certificate_options(add: Callable[..., object]) -> None:
    """Add those that belong to ``--tls``. ``add``: the ``add_argument`` of a parser or a group."""
    add("--cacert", metavar="FILE", help="authorities to trust (PEM)")
    add("--cert", metavar="FILE", help="our certificate (PEM)")
    add("--key", metavar="FILE", help="its key, if it is not in the same file")
    add("--sni", metavar="NAME", help="the name that certificates have to have")
    add("--insecure", action="store_true", help="trust any certificate")
