"""Says what to install if an extra is missing. Imports only what is always installed."""

from disque_trio.extras import how_to_install

# ``pyspark-client``, for Spark Connect, does not need py4j.
_MODULES = ("pyspark", "py4j", "pyarrow", "pandas", "numpy", "grpc", "grpc_status", "zstandard")


def advice(missing: ModuleNotFoundError, who: str) -> str | None:
    """How to install a module that could not be imported; None if it is not one of the extra's.

    Args:
        who: what needs the module, for the text.
    """
    name = (missing.name or "").partition(".")[0]
    if name not in _MODULES:
        return None
    extra = "spark" if name in _MODULES[:5] else "spark-connect"
    if who in ("audit", "watch") and name in ("pyarrow", "numpy"):
        extra = "audit"  # these two need no more, unless there is much to read
    return f"{who} needs {name}: {how_to_install(extra)}"
