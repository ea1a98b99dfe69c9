"""Says what to install where the extra ``spark`` is missing. Imports only what always is there."""

from disque_trio.extras import how_to_install

# ``pyspark-client``, for Spark Connect, does without py4j.
_MODULES = ("pyspark", "py4j", "pyarrow", "pandas", "numpy", "grpc", "grpc_status", "zstandard")


def advice(missing: ModuleNotFoundError, who: str) -> str | None:
    """A line about a module that could not be imported; None: it is none of those of the extra.

    Args:
        who: needs it.
    """
    name = (missing.name or "").partition(".")[0]
    if name not in _MODULES:
        return None
    extra = "spark" if name in _MODULES[:5] else "spark-connect"
    return f"{who} needs {name}: {how_to_install(extra)}"
