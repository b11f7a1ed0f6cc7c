"""A probe has the abilities that it can carry out, and no others."""

import numpy as np
import pytest

from paddlevit_dist.export.descriptions import require_exportable
from paddlevit_dist.images.classification.probes import KnnProbe, LinearProbe
from paddlevit_dist.settings import load
from paddlevit_dist.tasks.protocols import Exportable, LogContributor, Predictable, Recomputable

WORDS = ["-dataset=digits", "DATA.IMAGE_SIZE", "28", "DATA.IMAGE_CHANNELS", "1", "-pretrained=weights.npz"]


@pytest.fixture
def probe():
    return LinearProbe(load(["TASK", "linear_probe", *WORDS]).values)


@pytest.mark.parametrize("task", [LinearProbe, KnnProbe])
def test_a_probe_is_no_classifier(task):
    assert not issubclass(task, (Predictable, Exportable, Recomputable, LogContributor))


def test_its_export_is_refused_in_one_line(probe, refuse):
    assert refuse(require_exportable, probe) == (
        "export: task linear_probe does not support it: its class is not Exportable"
    )


def test_training_images_are_drawn_as_an_evaluation_sees_them(probe, tmp_path):
    samples = probe.build_dataset("train", tmp_path)
    batch = probe.collate([samples.sample(index, np.random.default_rng(index)) for index in range(4)])
    drawn, seen = probe.visualize_batch(samples, batch, 1), probe.visualize_eval_samples(samples, range(4))
    assert [caption for _, caption in drawn] == [caption for _, caption in seen]
    for (one, _), (other, _) in zip(drawn, seen):
        np.testing.assert_array_equal(one, other)
