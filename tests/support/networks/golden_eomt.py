"""EoMT of tests/golden/eomt.json, transformers' and the authors', with every dimension from the file."""

import functools
from typing import Any

import numpy as np

from support.networks.golden import arrays, description, recipe

GOLDEN = description("eomt")
MODELS: dict[str, Any] = GOLDEN["models"]


@functools.cache
def stored() -> dict[str, np.ndarray]:
    return arrays("eomt")


def random(key: str) -> np.random.Generator:
    return recipe()._rng(GOLDEN["seed"], key)


def sample(values: np.ndarray, number: int) -> np.ndarray:
    """The samples of an array that the file stores."""
    values = np.asarray(values)
    return values.ravel()[np.arange(number) * (values.size - 1) // (number - 1)]
