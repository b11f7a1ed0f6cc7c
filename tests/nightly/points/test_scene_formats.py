"""Scenes of other programs and data sets are prepared, trained on and evaluated."""

import pytest
from integration.points.test_scene_formats import BY_DAY, LAYOUTS, require_training_and_evaluation


@pytest.mark.parametrize("layout", [layout for layout in LAYOUTS if layout not in BY_DAY])
def test_each_layout_is_trained_on_and_evaluated(tmp_path, layout):
    require_training_and_evaluation(tmp_path, layout)
