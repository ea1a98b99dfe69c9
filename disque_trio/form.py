"""Which build of a distribution is installed: compiled by mypyc, or pure Python."""

from importlib.util import find_spec


def form(module: str = "disque_trio.resp.reply") -> str:
    """Return the build that is running. Either everything that can be compiled is, or nothing is,
    so one module of the distribution tells, without being loaded."""
    spec = find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    return "pure Python" if spec.origin.endswith(".py") else "compiled"
