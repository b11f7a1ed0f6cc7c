"""Numbers of parameters that a network's authors publish, against those of ours, of shapes alone."""

import math
from collections.abc import Mapping

import paddle

from paddlevit_dist.core.tasks.model_factory import create_model


def require_sizes(published: Mapping[str, float], num_classes: int, counts_frozen: bool = False) -> None:
    """Each network has as many parameters as its authors say.

    Args:
        published: by name: exact from 100,000 on, else millions, to a tenth, or whole ones that may be cut.
        num_classes: classes that they count for.
        counts_frozen: they count parameters that do not learn, too.
    """
    for name, expected in published.items():
        with paddle.LazyGuard():  # no memory is taken
            parameters = create_model(name, num_classes=num_classes).parameters()
        learned = [each for each in parameters if counts_frozen or not each.stop_gradient]
        count = sum(math.prod(each.shape) for each in learned)
        if expected > 1e5:
            assert count == expected, name
        else:
            assert abs(count / 1e6 - expected) < (1 if isinstance(expected, int) else 0.051), (name, count)
