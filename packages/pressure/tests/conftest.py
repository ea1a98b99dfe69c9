"""What all tests of pressure share."""

import pytest

pytest.register_assert_rewrite("packages.pressure.tests.support")
