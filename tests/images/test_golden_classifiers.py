"""Logits of other people's implementations, reproduced from weights under their names."""

from __future__ import annotations

import importlib.util
import json
import os
from pathlib import Path

import numpy as np
import paddle
import pytest
from paddle.nn.initializer import Constant

from paddlevit_dist.checkpoint.load import load_weights
from paddlevit_dist.images.models.layers import TruncatedNormal
from paddlevit_dist.models import create_model

FOLDER = Path(os.environ.get("GOLDEN_DIR", Path(__file__).resolve().parents[1] / "golden"))
TOLERANCE = 5e-5  # reached: 4e-6 on each of them
FIXTURES = ("classifiers", "paddlevit_classifiers", "huggingface_classifiers")


def recipe():
    specification = importlib.util.spec_from_file_location("golden_recipe", FOLDER / "recipe.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def description(fixture):
    return json.loads((FOLDER / f"{fixture}.json").read_text())


def entries():
    """(fixture, entry) of every golden model; an entry may end in ``:image size``."""
    return [(fixture, entry) for fixture in FIXTURES for entry in description(fixture)["models"]]


@pytest.fixture
def weights_of_zero(monkeypatch):
    """Drawing initial weights that are replaced at once would take most of the time."""
    monkeypatch.setattr(TruncatedNormal, "forward", lambda self, var, block=None: Constant(0.0)(var, block))


@pytest.mark.parametrize("fixture, entry", entries())
def test_golden_logits_are_reproduced(fixture, entry, weights_of_zero):
    about, seed, golden = description(fixture)["models"][entry], description(fixture)["seed"], recipe()
    state = {key: golden.golden_weight(seed, key, tuple(shape)) for key, shape in about["state"].items()}
    images = golden.golden_image(seed, 2, about["image_size"])

    model = create_model(about.get("equivalent", entry.split(":")[0]), image_size=about["image_size"])
    model.eval()
    load_weights(model, state, strict=True)
    with paddle.no_grad():
        logits = model(paddle.to_tensor(images)).numpy()

    assert sum(int(parameter.size) for parameter in model.parameters()) == about["parameters"]
    with np.load(FOLDER / f"{fixture}.npz") as expected:
        assert np.abs(logits - expected[entry]).max() <= TOLERANCE
