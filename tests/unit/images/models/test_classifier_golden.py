"""Logits of other implementations, reproduced from weights under their names."""

import numpy as np
import paddle
import pytest
from support import golden

from paddlevit_dist.checkpoint.load import load_weights
from paddlevit_dist.models import create_model

TOLERANCE = 5e-5  # reached: 4e-6 on each of them
FIXTURES = ("classifiers", "paddlevit_classifiers", "huggingface_classifiers")


def entries():
    """(fixture, entry) of every golden model; an entry may end in ``:image size``."""
    return [(fixture, entry) for fixture in FIXTURES for entry in golden.description(fixture)["models"]]


@pytest.mark.parametrize("fixture, entry", entries())
def test_golden_logits_are_reproduced(fixture, entry, weights_of_zero):
    about, seed = golden.description(fixture)["models"][entry], golden.description(fixture)["seed"]
    state = golden.weights(seed, about["state"])
    images = golden.recipe().golden_image(seed, 2, about["image_size"])

    model = create_model(about.get("equivalent", entry.split(":")[0]), image_size=about["image_size"])
    model.eval()
    load_weights(model, state, strict=True)
    with paddle.no_grad():
        logits = model(paddle.to_tensor(images)).numpy()

    assert sum(int(parameter.size) for parameter in model.parameters()) == about["parameters"]
    assert np.abs(logits - golden.arrays(fixture)[entry]).max() <= TOLERANCE
