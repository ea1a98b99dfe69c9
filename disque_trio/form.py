"""Which build is installed: compiled by mypyc, or pure Python."""

from importlib.util import find_spec


def form() -> str:
    """Return the build that is running. Either everything that can be compiled is, or nothing is,
    so one module tells, without being loaded."""
    spec = find_spec("disque_trio.resp.reply")
    assert spec is not None
    assert spec.origin is not None
    return "pure Python" if spec.origin.endswith(".py") else "compiled"
