"""What the fields of HTML forms can hold."""

import re
from typing import Final

NO_FIELD: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
"""Characters that HTML does not allow in a field."""


def field_value(text: str) -> str:
    """The value of a form field: unchanged, except for characters that HTML does not allow."""
    text = text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return NO_FIELD.sub("\N{REPLACEMENT CHARACTER}", text)


def untouched(sent: str, was: str) -> bool:
    """Whether a browser sends ``sent`` for a field of one line that showed ``was``."""
    return sent == field_value(was).replace("\r", "").replace("\n", "")
