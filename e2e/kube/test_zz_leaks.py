"""After all the other tests (the name sorts late) nothing of any volume is left, anywhere."""

import pytest

from harness.cleanup import wait_until
from kube import leaks


@pytest.mark.parametrize("look", leaks.LOOKS, ids=lambda look: look.__name__)
def test_nothing_is_left(cluster, look):
    wait_until(lambda: not look(cluster), 90, lambda: f"nothing is left: {look(cluster)}", pause=0.5)
