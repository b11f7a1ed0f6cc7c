"""Logits of other people's implementations, reproduced from weights under their names."""

from __future__ import annotations

import importlib.util
import json
import os
from pathlib import Path

import numpy as np
import paddle
import pytest

from paddlevit_dist.checkpoint.load import load_weights
from paddlevit_dist.models import create_model, list_models

FOLDER = Path(os.environ.get("GOLDEN_DIR", Path(__file__).resolve().parents[1] / "golden"))
TOLERANCE = 5e-5
FIXTURES = ("classifiers", "paddlevit_classifiers")


def recipe():
    specification = importlib.util.spec_from_file_location("golden_recipe", FOLDER / "recipe.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def entries():
    """(fixture, entry) of every golden model that is registered; an entry may end in ``:image size``."""
    return [
        (fixture, entry)
        for fixture in FIXTURES
        for entry in json.loads((FOLDER / f"{fixture}.json").read_text())["models"]
        if entry.split(":")[0] in list_models()
    ]


@pytest.mark.parametrize("fixture, entry", entries())
def test_golden_logits_are_reproduced(fixture, entry):
    description = json.loads((FOLDER / f"{fixture}.json").read_text())
    about, seed, golden = description["models"][entry], description["seed"], recipe()
    state = {key: golden.golden_weight(seed, key, tuple(shape)) for key, shape in about["state"].items()}
    images = golden.golden_image(seed, 2, about["image_size"])

    model = create_model(entry.split(":")[0], image_size=about["image_size"])
    model.eval()
    load_weights(model, state, strict=True)
    with paddle.no_grad():
        logits = model(paddle.to_tensor(images)).numpy()

    assert sum(int(parameter.size) for parameter in model.parameters()) == about["parameters"]
    with np.load(FOLDER / f"{fixture}.npz") as expected:
        assert np.abs(logits - expected[entry]).max() <= TOLERANCE


def test_golden_entries_of_the_vit_family_are_all_selected():
    selected = entries()
    for fixture in FIXTURES:
        in_file = json.loads((FOLDER / f"{fixture}.json").read_text())["models"]
        vit = [(fixture, entry) for entry in in_file if entry.startswith("vit_")]
        assert vit and all(entry in selected for entry in vit)
