"""The embedded store passes the tests for all event stores."""

from packages.bananaq.tests.support.banana_semantics import *  # noqa: F403
