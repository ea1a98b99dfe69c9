"""What all tests of the integrations share."""

import pytest

pytest.register_assert_rewrite("packages.integrations.tests.support")
