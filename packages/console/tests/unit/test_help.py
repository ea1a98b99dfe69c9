"""The examples in ``disque-console --help``."""

import shlex

from disque_console.command import EPILOG, _cluster, _parser


def test_the_examples_are_valid_commands() -> None:
    examples = EPILOG.partition("examples:\n")[2].replace("\\\n", " ").splitlines()
    assert len(examples) == 3
    for example in examples:
        name, *arguments = shlex.split(example.partition(" (")[0].partition(">>")[0])
        assert name == "disque-console"
        _cluster(_parser().parse_args(arguments))
