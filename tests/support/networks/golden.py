"""The golden files: outputs of other implementations, and the recipe for the weights and images they were given.

``tests/golden/README.md`` gives their origin. The environment variable GOLDEN_DIR selects another folder of them.
"""

import importlib.util
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

FOLDER = Path(os.environ.get("GOLDEN_DIR", Path(__file__).resolve().parents[2] / "golden"))


def description(name: str) -> dict[str, Any]:
    """What ``name.json`` says of the arrays."""
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


def arrays(name: str) -> dict[str, np.ndarray]:
    """All arrays of ``name.npz``."""
    with np.load(FOLDER / f"{name}.npz") as stored:
        return {key: stored[key] for key in stored.files}


def recipe() -> ModuleType:
    """The program that makes weights and images from a seed, as those who made the files had it."""
    return program("recipe.py")


def program(name: str) -> ModuleType:
    """A program beside the golden files, such as the one that makes annotations."""
    specification = importlib.util.spec_from_file_location(f"golden_{name[:-3]}", FOLDER / name)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def noisy_image(seed: int, number: int, height: int, width: int) -> np.ndarray:
    """An image of DETR's and RT-DETR's files, float32 (3, height, width): squares of 16 pixels, with noise."""
    random = recipe()._rng(seed, f"image{number}")
    coarse = random.standard_normal((3, -(-height // 16), -(-width // 16))).astype(np.float32)
    fine = random.standard_normal((3, height, width)).astype(np.float32)
    coarse = coarse.repeat(16, axis=1).repeat(16, axis=2)[:, :height, :width]
    return 2 * coarse + np.float32(0.5) * fine


def weights(seed: int, shapes: Mapping[str, Sequence[int]]) -> dict[str, np.ndarray]:
    """A state of these shapes, float32."""
    make = recipe().golden_weight
    return {key: make(seed, key, tuple(shape)) for key, shape in shapes.items()}
