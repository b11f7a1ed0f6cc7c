"""Colors of classes in the figures of a report."""

import numpy as np

from paddlevit_dist.core.tasks.figures import class_colors


def test_a_class_keeps_its_color_whatever_the_number_of_classes():
    colors = class_colors(40)
    assert colors.shape == (40, 3) and colors.dtype == np.uint8 and class_colors(0).shape == (0, 3)
    np.testing.assert_array_equal(class_colors(7), colors[:7], strict=True)
    assert colors[:5].tolist() == [[242, 24, 24], [92, 125, 204], [167, 242, 61], [204, 20, 181], [109, 242, 220]]
    distances = np.abs(colors[:, None].astype(int) - colors).sum(2)[np.triu_indices(40, 1)]
    assert distances.min() > 30  # of 765
