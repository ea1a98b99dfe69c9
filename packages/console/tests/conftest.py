"""What all tests of the console share."""

import pytest

pytest.register_assert_rewrite("packages.console.tests.support")
