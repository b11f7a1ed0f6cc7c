"""Weights of TRAIN.LORA: matrices of low rank, stored without the weights that they are added to."""

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..runtime.errors import UserError
from .content import read_weights_info

FACTORS = ("lora_a", "lora_b")  # names of a layer's factors, (in, rank) and (rank, out)
KEY = "lora"  # in about.yaml


class LowRankBase(NamedTuple):
    """The weights that matrices of low rank are added to.

    Attributes:
        source: path, address or published name.
        digest: ``digest_matrices`` of the layers' own weights.
        scale: factor of the product of both factors.
    """

    source: str
    digest: str
    scale: float


def is_factor(name: str) -> bool:
    """Return whether a parameter is one of the factors."""
    return name.rpartition(".")[2] in FACTORS


def list_layers(names: Iterable[str]) -> list[str]:
    """Return the sorted names of the layers that have factors."""
    return sorted(name.rpartition(".")[0] for name in names if name.rpartition(".")[2] == FACTORS[0])


def digest_matrices(matrices: Mapping[str, np.ndarray]) -> str:
    """Return the SHA-256 of matrices by layer name, in hexadecimal."""
    digest = hashlib.sha256()
    for name in sorted(matrices):
        digest.update(f"{name} {matrices[name].shape}\n".encode())
        digest.update(np.ascontiguousarray(matrices[name], np.float32).tobytes())
    return digest.hexdigest()


def merge(matrix: np.ndarray, factors: tuple[np.ndarray, np.ndarray], scale: float) -> np.ndarray:
    """Return ``matrix + scale * first @ second``, computed in float64.

    Source: E. Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", arXiv 2106.09685, section 4.1.

    Args:
        matrix: (in, out).
        factors: (in, rank) and (rank, out).
        scale: alpha / rank.
    """
    first, second = (factor.astype(np.float64) for factor in factors)
    change = scale * (first @ second)
    return (matrix.astype(np.float64) + change).astype(matrix.dtype)


def read_base(file: str) -> LowRankBase:
    """Read which weights the factors in ``file`` are added to.

    Raises:
        UserError: they are not recorded.
    """
    record = read_weights_info(Path(file)).get(KEY)
    if record is None:
        raise UserError(
            f"{file} has only the low-rank matrices of TRAIN.LORA, and no about.yaml next to it says which weights "
            "they belong to: name the checkpoint's folder"
        )
    return LowRankBase(record["source"], record["digest"], float(record["scale"]))


def find_source(file: Path) -> str:
    """Return the source of the base in a checkpoint of TRAIN.LORA; for other weights, the file itself."""
    record = read_weights_info(file).get(KEY)
    return str(file) if record is None else record["source"]


def require_base(file: str, base: LowRankBase, matrices: Mapping[str, np.ndarray]) -> None:
    """Check that the layers' own weights are those that the factors in ``file`` were trained with.

    Raises:
        UserError: they are others.
    """
    if digest_matrices(matrices) != base.digest:
        raise UserError(
            f"{file} was trained by TRAIN.LORA on other weights than {base.source} has now: put the weights with "
            f"digest {base.digest[:12]} back there"
        )
