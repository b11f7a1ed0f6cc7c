"""Checkpoints of TRAIN.LORA: they hold each tensor that differs from the base, and a digest of all others.

The base is the file of whole weights that a run, or the run that it started from, began with. Trained matrices, heads
and statistics differ, and so do matrices that an earlier run's were merged into, rows of classes in another order, and
parameters that the base lacks.
"""

import hashlib
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..runtime.errors import UserError
from .records import read_weights_info

FACTORS = ("lora_a", "lora_b")  # names of a layer's factors, (in, rank) and (rank, out)
KEY = "low_rank"  # in about.yaml


class LowRankBase(NamedTuple):
    """Whole weights, as a run has read them.

    Attributes:
        part: the entry of the source that was used, see ``read_weights``; None: it was not chosen.
        digests: ``digest`` of each array that the model has, by the model's names.
        unused: names of the others.
    """

    source: str
    part: str | None
    digests: dict[str, str]
    unused: list[str]

    def find_changed(self, *states: Mapping[str, np.ndarray]) -> set[str]:
        """Return the names of the arrays in ``states`` that are not in the base, or have other values there."""
        return {name for state in states for name, value in state.items() if self.digests.get(name) != digest(value)}

    def describe(self, held: Collection[str], scale: float) -> dict[str, Any]:
        """Return the record in ``about.yaml`` of a checkpoint with the arrays ``held``; ``scale`` is alpha / rank."""
        chosen = {"source": self.source, "part": self.part, "unused": self.unused}
        return {**chosen, "digest": self.digest_rest(held), "scale": scale}

    def digest_rest(self, held: Collection[str]) -> str:
        """Return the SHA-256 of all arrays of the base that are not in ``held``, in hexadecimal."""
        rest = sorted(self.digests.keys() - set(held))
        return hashlib.sha256("".join(f"{name} {self.digests[name]}\n" for name in rest).encode()).hexdigest()


def digest(array: np.ndarray) -> str:
    """Return the SHA-256 of an array's shape and values, in hexadecimal; floating-point numbers as float32."""
    values = array.astype(np.float32, copy=False) if array.dtype.kind == "f" else array
    result = hashlib.sha256(f"{values.dtype} {values.shape}\n".encode())
    result.update(np.ascontiguousarray(values).reshape(-1).view(np.uint8))
    return result.hexdigest()


def is_factor(name: str) -> bool:
    """Return whether a parameter is one of the factors."""
    return name.rpartition(".")[2] in FACTORS


def has_factors(names: Iterable[str]) -> bool:
    """Return whether some of the parameters are factors."""
    return any(name.endswith(FACTORS) and is_factor(name) for name in names)


def list_factors(model: Any) -> set[str]:
    """Return the names of the factors that TRAIN.LORA has added to a model, whose own may have such names."""
    added = [name for name, layer in model.named_sublayers(include_self=True) if hasattr(layer, "lora_scale")]
    return {f"{name}.{factor}".lstrip(".") for name in added for factor in FACTORS}


def list_layers(names: Iterable[str]) -> list[str]:
    """Return the sorted names of the layers that have factors."""
    return sorted({name.rpartition(".")[0] for name in names if is_factor(name)})


def merge(
    matrix: np.ndarray, factors: tuple[np.ndarray, np.ndarray], scale: float, is_transposed: bool = False
) -> np.ndarray:
    """Return ``matrix + scale * first @ second``, computed in float64.

    ``matrix`` is (in, out), or (out, in) as in PyTorch if ``is_transposed``; ``factors`` are (in, rank) and (rank,
    out), ``scale`` is alpha / rank.

    Source: E. Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", arXiv 2106.09685, section 4.1.
    """
    first, second = (factor.astype(np.float64) for factor in factors)
    change = scale * (first @ second)
    return (matrix.astype(np.float64) + (change.T if is_transposed else change)).astype(matrix.dtype)


def has_record(file: str) -> bool:
    """Return whether ``read_record`` finds a record."""
    return KEY in read_weights_info(Path(file))


def read_record(file: str) -> dict[str, Any]:
    """Read what ``LowRankBase.describe`` recorded for the checkpoint with these weights, or raise UserError."""
    about = read_weights_info(Path(file))
    if KEY in about:
        return dict(about[KEY])
    raise UserError(
        f"{file} has only what TRAIN.LORA changed, and no about.yaml next to it says which weights that belongs to: "
        "name the checkpoint's folder"
    )


def require_base(file: str, record: Mapping[str, Any], base: LowRankBase, held: Collection[str]) -> None:
    """Raise UserError if what a checkpoint leaves to its base has changed since it was written.

    ``file``: the checkpoint's weights, for messages; ``held``: names of the arrays in the checkpoint.
    """
    if base.digest_rest(held) != record["digest"]:
        raise UserError(
            f"{file} was trained by TRAIN.LORA on other weights than {base.source} has now: put the weights that "
            "it was trained on back there"
        )
