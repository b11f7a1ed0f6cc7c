"""Logits of other implementations, reproduced from weights under their names."""

import numpy as np
import paddle
import pytest
from support.networks import golden
from support.networks.cheap_weights import weights_of_zero

from paddlevit_dist.core.checkpoint.load import load_weights
from paddlevit_dist.core.tasks.model_factory import create_model

TOLERANCE = 5e-5  # reached: 4e-6 on each of them
FIXTURES = ("classifiers", "paddlevit_classifiers", "huggingface_classifiers")


LARGE = 30_000_000  # parameters, from which a case takes seconds: those are of the night
OF_SMALLER_ONES_CODE = {"vit_small_patch16_224", "vit_small_patch16_224:384", "pvt_v2_b2"}  # of the night too


def entries(is_large, fixtures=FIXTURES):
    """(fixture, entry) of the golden models that are large or not; an entry may end in ``:image size``."""
    return [
        (fixture, entry)
        for fixture in fixtures
        for entry, about in golden.description(fixture)["models"].items()
        if (about["parameters"] > LARGE or entry in OF_SMALLER_ONES_CODE) == is_large
    ]


@weights_of_zero()
@pytest.mark.parametrize("fixture, entry", entries(False, ("classifiers",)))
def test_golden_logits_are_reproduced(fixture, entry):
    require_logits(fixture, entry)


def require_logits(fixture, entry):
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
