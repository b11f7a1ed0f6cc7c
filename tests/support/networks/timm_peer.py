"""timm modules as a reference for tests, if installed; torch is needed only by those that import it."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest


def timm_module(name: str):
    """``timm.data.<name>`` loaded by itself, for the package as a whole needs torchvision; skips without timm."""
    found = importlib.util.find_spec("timm")
    if found is None:
        pytest.skip("timm is not installed")
    path = Path(found.submodule_search_locations[0], "data", f"{name}.py")
    spec = importlib.util.spec_from_file_location(f"timm_{name}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def kolmogorov_distance(values, distribution) -> float:
    """sqrt(n) x the largest distance between the values' empirical distribution and ``distribution(value)``; above
    1.95 with probability 0.001 if they are drawn from it."""
    values = np.sort(np.asarray(values, dtype=float))
    steps = np.arange(len(values) + 1) / len(values)
    expected = distribution(values)
    return float(np.sqrt(len(values)) * max((steps[1:] - expected).max(), (expected - steps[:-1]).max()))
