"""A check of what a run has saved: an evaluation that loads the checkpoint gets the weights that were scored."""

import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import paddle

from ..checkpoint.directory_names import MODEL
from ..checkpoint.load import load_weights
from ..checkpoint.low_rank import FACTORS, list_factors
from ..checkpoint.weight_files import evaluated_weights
from ..runtime.errors import UserError

_ROUNDING = 1e-5  # of the largest value of a merged matrix


def digest_state(model: paddle.nn.Layer) -> dict[str, str]:
    """Return a digest of each tensor of the model's state by name; one tensor at a time is copied to the host."""
    return {name: _digest(tensor.numpy()) for name, tensor in model.state_dict().items()}


def _digest(value: np.ndarray) -> str:
    digest = hashlib.blake2b(f"{value.dtype} {value.shape}".encode())
    digest.update(np.ascontiguousarray(value).data)
    return digest.hexdigest()


def require_saved(
    model: paddle.nn.Layer,
    checkpoint: Path,
    scored: dict[str, str],
    build_plain: Callable[[], paddle.nn.Layer],
    log: Callable[[str], None],
) -> None:
    """Load a checkpoint as an evaluation does, and compare it with the weights that were scored. Reads no data.

    With TRAIN.LORA, an evaluation merges the matrices of low rank, so the merged matrices are compared as well, with a
    model from ``build_plain``. The model, which has the checkpoint's weights, needs no further memory apart from that,
    and has its own weights again afterwards. Raises RuntimeError if a tensor is not what was scored, or not what the
    model has: an error in this package.

    Args:
        scored: ``digest_state`` of the model when it was scored.
        log: receives a line if the checkpoint cannot be loaded.
    """
    own, source = digest_state(model), evaluated_weights(str(checkpoint))
    try:
        load_weights(model, source, strict=True)
        loaded = digest_state(model)
        differing = _compare(scored, loaded) or find_unmerged(model, source, build_plain)
        if loaded != own:  # averaged
            load_weights(model, str(checkpoint / MODEL), strict=True)
            differing = differing or _compare(own, digest_state(model))
    except UserError as error:
        log(f"note: {checkpoint} cannot be loaded as an evaluation would: {error}")
        return
    if differing:
        raise RuntimeError(
            f"{len(differing)} tensors of {checkpoint} are not the ones that were scored, such as '{differing[0]}': an "
            "evaluation of it would give another score. This is an error in paddlevit_dist, or in a task of your own"
        )


def _compare(expected: dict[str, str], found: dict[str, str]) -> list[str]:
    return [name for name in {**expected, **found} if expected.get(name) != found.get(name)]


def find_unmerged(model: paddle.nn.Layer, source: str, build_plain: Callable[[], paddle.nn.Layer]) -> list[str]:
    """Return the names of weights that a model without matrices of low rank does not get as the model computes them."""
    state, layers = model.state_dict(), dict(model.named_sublayers())
    if not list_factors(model):
        return []
    plain = build_plain()
    load_weights(plain, source, strict=True)
    differing = []
    for name, tensor in plain.state_dict().items():
        layer, expected = name.rpartition(".")[0], state[name].numpy()
        factors = [state[f"{layer}.{factor}"] for factor in FACTORS if f"{layer}.{factor}" in state]
        tolerance = 0.0
        if factors and name == f"{layer}.weight":
            first, second = (factor.numpy().astype(np.float64) for factor in factors)
            change = layers[layer].lora_scale * (first @ second)  # (in, out)
            is_ours = isinstance(layers[layer], paddle.nn.Linear)  # weights of bridges are (out, in)
            expected = expected + (change if is_ours else change.T)
            tolerance = _ROUNDING * float(np.abs(expected).max())
        if not np.abs(tensor.numpy() - expected).max(initial=0.0) <= tolerance:
            differing.append(name)
    return differing
