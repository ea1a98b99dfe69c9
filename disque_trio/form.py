"""Which of its two forms is installed: compiled by mypyc, or as it was written."""

from disque_trio.protocol import reply


def form() -> str:
    """The form that runs. All that can be compiled is, or nothing: so one module tells."""
    return "pure Python" if reply.__file__.endswith(".py") else "compiled"
