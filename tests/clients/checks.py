# SPDX-License-Identifier: Apache-2.0
"""What the suites of the official clients share."""
import pytest

KEY = "key-of-the-clients-test"


def expect_raises(kind, call):
    """The exception of this kind that call() must end with."""
    with pytest.raises(kind) as caught:
        call()
    return caught.value
