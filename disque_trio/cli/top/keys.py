"""Decodes the keys that a terminal sends."""

from codecs import getincrementaldecoder
from typing import Final

ESCAPE: Final = "escape"
ENTER: Final = "enter"
BACKSPACE: Final = "backspace"
CLEAR: Final = "clear"
"""Ctrl-U."""

_SINGLE: Final = {
    "\r": ENTER,
    "\n": ENTER,
    "\x7f": BACKSPACE,
    "\x08": BACKSPACE,
    "\x15": CLEAR,
    "\x0c": "redraw",
}
_ENDS: Final = {
    "A": "up",
    "B": "down",
    "F": "end",
    "H": "home",
    "1~": "home",
    "4~": "end",
    "5~": "page up",
    "6~": "page down",
    "7~": "home",
    "8~": "end",
}


class Keys:
    """Finds keys in a terminal's input, piece by piece. A key is a character or a name."""

    def __init__(self, encoding: str = "utf-8") -> None:
        self._decoder = getincrementaldecoder(encoding)("replace")
        self._held = ""

    @property
    def waits(self) -> bool:
        """Whether an escape may be the Escape key, or the beginning of another key."""
        return bool(self._held)

    def feed(self, data: bytes) -> list[str]:
        """The keys in ``data``."""
        text, self._held = self._held + self._decoder.decode(data), ""
        found: list[str] = []
        while text:
            if text[0] != "\x1b":
                found.append(_SINGLE.get(text[0], text[0]))
                text = text[1:]
                continue
            length = _length(text)
            if not length:
                self._held = text
                break
            key = ESCAPE if length == 1 else _ENDS.get(text[2:length], "")
            found += [key] if key else []
            text = text[length:]
        return [key for key in found if len(key) > 1 or key.isprintable()]

    def flush(self) -> list[str]:
        """Take a pending escape as the Escape key, since nothing followed."""
        held, self._held = self._held, ""
        return [ESCAPE] if held else []


def _length(text: str) -> int:
    """The length of the sequence at the start of ``text``; 0 if it is incomplete."""
    if len(text) == 1:
        return 0
    if text[1] not in "[O":
        return 1
    for place in range(2, len(text)):
        if "\x40" <= text[place] <= "\x7e":
            return place + 1
    return 0 if len(text) < 32 else len(text)
