"""Says what to install if an extra is missing. Imports only what is always installed."""

from pathlib import Path

from disque_trio import extras

# ``pyspark-client``, for Spark Connect, does not need py4j.
_MODULES = ("pyspark", "py4j", "pyarrow", "pandas", "numpy", "grpc", "grpc_status", "zstandard")


def how_to_install(extra: str) -> str:
    """Return the command that installs an extra of this distribution for the running Python."""
    return extras.how_to_install(extra, "disque-spark", Path(__file__).parent)


def advice(missing: ModuleNotFoundError, who: str) -> str | None:
    """How to install a module that could not be imported; None if it is not one of the extra's.

    Args:
        who: what needs the module, for the text.
    """
    name = (missing.name or "").partition(".")[0]
    if name not in _MODULES:
        return None
    extra = "pyspark" if name in _MODULES[:5] else "connect"
    return f"{who} needs {name}: {how_to_install(extra)}"
