"""Jobs that are added in a transaction of the program's own database.

The program writes a row into a table in its transaction (``Outbox`` for SQLAlchemy,
``disque_integrations.outbox.django`` for Django). After the commit, ``disque-outbox`` forwards the
row with ADDJOB UNIQUE. See docs/outbox.md.
"""

from typing import TYPE_CHECKING

from disque_trio.extras import how_to_install

if TYPE_CHECKING:
    from disque_integrations.outbox.table import Outbox as Outbox

__all__ = ["Outbox"]


def __getattr__(name: str) -> object:
    # Programs that use Django do not need SQLAlchemy.
    if name != "Outbox":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from disque_integrations.outbox.table import Outbox
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] != "sqlalchemy":
            raise
        raise ImportError(
            f"Outbox needs SQLAlchemy: {how_to_install('outbox')}",
            name=missing.name,
        ) from missing
    return Outbox
