"""The user's view of the queues, and the keys that change it."""

from typing import Final

from disque_trio.cli.top.keys import BACKSPACE, CLEAR, ENTER, ESCAPE

SORTS: Final = {
    "n": "name",
    "l": "length",
    "a": "added",
    "d": "delivered",
    "c": "acked",
    "o": "oldest",
    "w": "blocked",
    "p": "paused",
}
"""The sort key of ``QueueTable`` for each key on the keyboard."""

LONGEST: Final = 200  # characters of a search


class View:
    """A view of the queues.

    Attributes:
        sort, descending: their order. search: part of a name, or a pattern; empty for all.
        typed: the search being typed, or None.
        running: whether to show the jobs in hand that say how far they are, in place of the queues.
        full: whether to count jobs that are delayed, in hand or dead.
        help: whether to show the help. over: whether the user has quit.
        first: the index of the first line on the screen.
    """

    def __init__(self) -> None:
        self.sort = "name"
        self.descending = False
        self.search = ""
        self.typed: str | None = None
        self.running = False
        self.full = False
        self.help = False
        self.over = False
        self.first = 0
        self._page = 1
        self._last = 0  # the maximum of ``first``

    def fit(self, count: int, page: int) -> None:
        """Adjust to ``count`` lines, of which ``page`` fit on the screen."""
        self._page = max(1, page)
        self._last = max(0, count - self._page)
        self.first = min(self.first, self._last)

    def press(self, key: str) -> None:
        """Handle a key press."""
        if self.typed is not None:
            self._type(self.typed, key)
        elif self.help:
            self.help = False
            self.over = key in ("q", "Q")
        elif key in ("q", "Q"):
            self.over = True
        elif key in ("h", "?"):
            self.help = True
        elif key == "/":
            self.typed = self.search
        elif key == ESCAPE:
            self._seek("")
        elif key == "t":
            self.running, self.first = not self.running, 0
        elif key == "f":
            self.full = not self.full
        elif key == "r":
            self.descending = not self.descending
        elif key in SORTS:
            # The same key again reverses the order; numbers begin with the largest.
            wanted = SORTS[key]
            self.descending = not self.descending if wanted == self.sort else wanted != "name"
            self.sort, self.first = wanted, 0
        else:
            self._scroll(key)

    def _scroll(self, key: str) -> None:
        steps = {
            "up": -1,
            "k": -1,
            "down": 1,
            "j": 1,
            "page up": -self._page,
            "b": -self._page,
            "page down": self._page,
            " ": self._page,
        }
        if key in steps:
            self.first = max(0, min(self.first + steps[key], self._last))
        elif key in ("home", "g"):
            self.first = 0
        elif key in ("end", "G"):
            self.first = self._last

    def _type(self, typed: str, key: str) -> None:
        if key == ENTER:
            self.typed = None
        elif key == ESCAPE:
            self.typed = None
            self._seek("")
        elif key in (BACKSPACE, CLEAR):
            self.typed = typed[:-1] if key == BACKSPACE else ""
            self._seek(self.typed)
        elif len(key) == 1 and len(typed) < LONGEST:
            self.typed = typed + key
            self._seek(self.typed)

    def _seek(self, search: str) -> None:
        self.search, self.first = search, 0
