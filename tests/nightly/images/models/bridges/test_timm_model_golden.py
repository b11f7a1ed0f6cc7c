"""Every model of the golden files, built by timm on Paddle, gives PyTorch's logits."""

import pytest
from support import golden, timm_zoo

FILES = ("timm_zoo", "timm_zoo_more")


@timm_zoo.needs_compat
@pytest.mark.parametrize(
    ("file", "name"), [(file, name) for file in FILES for name in golden.description(file)["models"]]
)
def test_logits_are_those_of_pytorch(file, name):
    """PyTorch's own float32 error, 20 times, is the limit: the one of the golden file."""
    error, allowed = timm_zoo.make_error(name, file)
    assert error <= allowed
