"""Exported models are scored by another number of processes than by day."""

from integration.images.test_exported_scores import (
    needs_onnx,
    require_score_of_another_maker,
    require_score_of_the_weights,
    trained,  # noqa: F401
)


def test_an_export_has_the_score_of_its_weights_and_says_so(trained, tmp_path):  # noqa: F811
    require_score_of_the_weights(trained, tmp_path, 1)


@needs_onnx
def test_a_model_of_another_maker_has_the_score_that_follows_from_the_number_of_images(tmp_path):
    require_score_of_another_maker(tmp_path, 2)
