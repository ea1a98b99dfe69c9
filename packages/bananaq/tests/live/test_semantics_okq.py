"""The store in a Redis passes the tests for all event stores with ids that producers choose."""

from packages.bananaq.tests.support.banana_semantics_okq import *  # noqa: F403
