"""Which of its two forms is installed: compiled by mypyc, or as it was written."""

from importlib.util import find_spec


def form() -> str:
    """The form that runs. All that can be compiled is, or nothing: so one module tells, and need
    not be loaded for it."""
    spec = find_spec("disque_trio.resp.reply")
    assert spec is not None
    assert spec.origin is not None
    return "pure Python" if spec.origin.endswith(".py") else "compiled"
