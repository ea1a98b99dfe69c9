"""What has failed, in a line: Spark says it in pages."""

import os
import re

# What Python says of an exception in a worker, and what Java says of the reason of another one.
_PYTHON = re.compile(r"^(?:[A-Za-z_]\w*\.)*([A-Za-z_]*(?:Error|Exception): .*)$", re.MULTILINE)
_JAVA = re.compile(r"^Caused by: (?:[a-z]\w*\.)+\w+: (.+)$", re.MULTILINE)
_CALL = re.compile(r"^An error occurred while calling .*\n: (?:[a-z]\w*\.)+", re.MULTILINE)
# What PySpark's planner of a stream fails with when a source has refused its options.
_FOLLOWS = "UnboundLocalError: cannot access local variable 'reader'"
_LONGEST = 500

# A Python that is not there, and one that ends before it is a worker: its traceback is indented.
_NO_PROGRAM = re.compile(r'Cannot run program "[^"\n]+"[^\n]*')
_ENDED = "reading the port number from pyspark.daemon's stdout"
_WHY_ENDED = re.compile(r"^ +(?:[A-Za-z_]\w*\.)*([A-Za-z_]*Error: .*)$", re.MULTILINE)
NOT_STARTED = "Python workers do not start"
# What is wrong with a Python that Spark has started; whose it is has to be said.
_OF_PYTHON = re.compile(
    rf"(?:ModuleNotFoundError: No module named \S+|{NOT_STARTED}.*|Cannot run program .*)"
)
# What is done beside the driver: it plans what sources read.
_PLANNED = re.compile(r"PYTHON_DATA_SOURCE_ERROR|PythonPlannerRunner")
_PLACE = re.compile(r"\(TID \d+\) \((\S+) executor (\w+)\)")


def text_of(failure: BaseException) -> str:
    """All that it says, or else what it is."""
    try:
        text = str(failure).strip()
    except Exception:  # what Java threw is asked for its text; the JVM may be gone
        text = ""
    return text or type(failure).__name__


def told(failure: BaseException) -> str:
    """What a person wants to know, in a line; Spark adds pages of Java's stack. If a Python of
    Spark's lacks something the line says which Python."""
    text = text_of(failure)
    line = _line(text)
    if _OF_PYTHON.fullmatch(line) and type(failure).__module__.startswith(("pyspark.", "py4j.")):
        line = f"{line} (Python of {_whose(failure, text)})"
    return line[:_LONGEST]


def _line(text: str) -> str:
    if _ENDED in text:
        why = _WHY_ENDED.findall(text)
        return f"{NOT_STARTED}: {why[-1]}" if why else f"{NOT_STARTED}: they end at once"
    if (missing := _NO_PROGRAM.search(text)) is not None:
        return missing[0]
    found = _PYTHON.findall(text) or _JAVA.findall(text)
    causes = [cause for cause in found if not cause.startswith(_FOLLOWS)] or found
    return str(causes[-1]) if causes else _CALL.sub("", text).strip().splitlines()[0]


def _whose(failure: BaseException, text: str) -> str:
    if type(failure).__module__.startswith("pyspark.errors.exceptions.connect"):
        return "the server of Spark Connect or its executors"
    program = os.environ.get("PYSPARK_PYTHON", "python3")
    if (place := _PLACE.search(text)) is not None:
        who = f"executor {place[2]} on {place[1]}"
    else:
        who = "Spark beside the driver" if _PLANNED.search(text) else "the executors"
    return f"{who}: PYSPARK_PYTHON={program}"
