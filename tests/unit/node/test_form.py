"""Which form of the state machine is tested: nobody wants to test the other one by accident."""

import os

from disque_trio.form import form
from disque_trio.node.commands import jobs
from disque_trio.node.core import node
from disque_trio.resp import request

EXPECTED = os.environ.get("DISQUE_TRIO_FORM", "pure Python")


def test_the_form_that_runs_is_the_one_that_is_to_be_tested() -> None:
    assert form() == EXPECTED
    for module in (node, jobs, request):
        assert module.__file__.endswith(".so" if EXPECTED == "compiled" else ".py")
