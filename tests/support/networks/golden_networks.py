"""A golden file of several networks: what it says of each, its arrays, and what it takes to build and feed ours."""

import contextlib
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import paddle

from support.networks.cheap_weights import weights_of_zero
from support.networks.golden import arrays, description, recipe


class GoldenNetworks:
    """The content of ``name.json`` and ``name.npz``; models with more parameters than ``large`` are for the night."""

    def __init__(self, name: str, large: float) -> None:
        self.about = description(name)
        self.models: dict[str, Any] = self.about["models"]
        self.stored = functools.cache(functools.partial(arrays, name))
        self.large = large

    def list_models(self, is_large: bool) -> list[str]:
        return [model for model, about in self.models.items() if (about["parameters"] > self.large) == is_large]

    def list_parts(self, kind: str, is_large: bool) -> list[tuple[str, Any]]:
        """Each model of that size with the name, or number, of each of its cases, runs or batches."""
        models = ((model, self.models[model].get(kind, {})) for model in self.list_models(is_large))
        return [
            (model, part)
            for model, parts in models
            for part in (range(len(parts)) if isinstance(parts, list) else parts)
        ]

    def draw(self, key: str, shape: tuple[int, ...]) -> np.ndarray:
        """A parameter of this name by the file's recipe, float32."""
        return recipe().golden_weight(self.about["seed"], key, shape)

    def pad_objects(
        self, place: str, counts: Sequence[int], sizes: Sequence[Sequence[int]]
    ) -> tuple[np.ndarray, np.ndarray]:
        """The corners of each image's objects in pixels, and their labels, padded with -1.

        ``sizes`` are height and width of each image; the file has centers and sizes as shares.
        """
        boxes = np.zeros((len(counts), max(1, *counts), 4))
        labels = np.full(boxes.shape[:2], -1, dtype=np.int64)
        for image, (number, (height, width)) in enumerate(zip(counts, sizes, strict=True)):
            own = self.stored()[f"{place}/boxes{image}"]
            corners = np.concatenate([own[:, :2] - own[:, 2:] / 2, own[:, :2] + own[:, 2:] / 2], axis=1)
            boxes[image, :number] = corners * [width, height, width, height]
            labels[image, :number] = self.stored()[f"{place}/labels{image}"]
        return boxes, labels


def find_by_ending(values: Mapping[str, float], name: str, default: float) -> np.float32:
    """The first value whose key ends the name, such as a gain of all biases."""
    return np.float32(next((value for ending, value in values.items() if name.endswith(ending)), default))


@contextlib.contextmanager
def building(dtype: str) -> Iterator[None]:
    """Layers that are built meanwhile have this type, and weights of zero."""
    before = paddle.get_default_dtype()
    paddle.set_default_dtype(dtype)
    try:
        with weights_of_zero():
            yield
    finally:
        paddle.set_default_dtype(before)


def sample(values: Any, number: int) -> np.ndarray:
    """The samples of an array that a file stores."""
    values = np.asarray(values)
    return values.ravel()[np.arange(number) * (values.size - 1) // (number - 1)]
