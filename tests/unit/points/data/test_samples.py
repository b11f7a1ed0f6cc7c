"""Scenes with their processing: what they say of the scenes they hold."""

from types import SimpleNamespace

import pytest

from paddlevit_dist.points.data.samples import SceneSamples


@pytest.mark.parametrize("labeled", [True, False])
def test_samples_have_labels_and_names_if_their_scenes_do(labeled):
    names = ["wall", "floor", "door"] if labeled else None
    samples = SceneSamples(SimpleNamespace(labeled=labeled, class_names=names), (), "first")
    assert samples.labeled is labeled and samples.class_names is names
