"""Fine-tuning with two processes, for other classes and another image size, from weights in every format."""

import pytest
from integration.images.test_fine_tuning import (
    FORMATS,
    first_weights,  # noqa: F401
    folder,  # noqa: F401
    require_the_same_weights,
    results,  # noqa: F401
)


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_ends_with_the_same_weights(folder, results, first_weights, name):  # noqa: F811
    require_the_same_weights(folder, results, first_weights, name)
