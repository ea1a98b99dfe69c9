"""What the embedded store does with ids that producers choose, as every store of events."""

from tests.support.banana_semantics_okq import *  # noqa: F403
