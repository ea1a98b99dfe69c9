"""The tests run the build of the state machine (compiled or not) that they are meant to."""

import os

from disque_trio.form import form
from disque_trio.node.commands import jobs
from disque_trio.node.core import node
from disque_trio.resp import request

EXPECTED = os.environ.get("DISQUE_TRIO_FORM", "pure Python")


def test_the_build_under_test_is_the_one_that_runs() -> None:
    assert form() == EXPECTED
    for module in (node, jobs, request):
        assert module.__file__.endswith(".so" if EXPECTED == "compiled" else ".py")
