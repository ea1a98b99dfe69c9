"""Converts names that clients chose to label values.

A name that is text and not too long is its own label. Other names (bytes that are not UTF-8,
control characters, which no line of a page may have, very long names, and the empty name) are shown
as far as possible, and end with a hash of the whole name, so that different names have different
labels. No name has an empty label, since that stands for all names that are not shown.
"""

import hashlib
import re

MOST = 200  # bytes of a name that are shown
_HASHED = re.compile(r"#[0-9a-f]{32}\Z")
# Characters that split lines in some programs, or end a text, as NUL does in Prometheus.
_UNFIT = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")


def label_value(name: bytes) -> str:
    """Return the label for ``name``, not yet escaped."""
    try:
        text = name.decode()
    except UnicodeDecodeError:
        text = ""
    if text and len(name) <= MOST and not _UNFIT.search(text) and not _HASHED.search(text):
        return text
    shown = name[:MOST].decode("utf-8", "backslashreplace")
    shown = _UNFIT.sub(lambda found: f"\\x{ord(found[0]):02x}", shown)
    return f"{shown}#{hashlib.sha256(name).hexdigest()[:32]}"


def escape(value: str) -> str:
    """Escape ``value`` for the quotes of a label."""
    if "\\" in value or '"' in value or "\n" in value:
        return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
    return value
