"""Training checkpoints of PaddleViT's programs, in one ``.pdparams`` file.

Source: github.com/BR-IDL/PaddleViT, image_classification/*/main_multi_gpu.py, steps 7 and 10: ``model``, ``optimizer``,
``epoch``, ``lr_scheduler``, and optionally ``model_ema`` and ``amp_grad_scaler``.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..runtime.errors import UserError
from ..runtime.printing import shorten
from .file_formats import choose_format
from .unpickling import PickleReader, expect, restricted_load, unpack_tensor
from .weights import SourceWeights, as_array, weights_from_mapping

_ACCUMULATOR = re.compile(r"(.+)_(moment1|moment2|beta1_pow_acc|beta2_pow_acc|velocity)_\d+")


class PaddleViTTraining(NamedTuple):
    """State of a training run of PaddleViT.

    ``epoch`` is the last completed one; ``accumulators`` are by kind, then by name of the weight; ``scaler`` may be
    empty.
    """

    epoch: int
    weights: SourceWeights
    average: SourceWeights | None
    accumulators: dict[str, SourceWeights]
    scaler: dict[str, Any]


def read_training(file: Path) -> PaddleViTTraining | None:
    """Read PaddleViT's training checkpoint; return None for a file of weights alone.

    Raises UserError if the file is damaged, or its optimizer's state does not belong to its weights.
    """
    if choose_format(file) != "paddle":
        return None
    content = restricted_load(file, _NameReader)
    if not isinstance(content, dict) or not all(isinstance(content.get(key), dict) for key in ("model", "optimizer")):
        return None
    epoch = content.get("epoch")
    if type(epoch) is not int or epoch < 0:
        raise UserError(
            f"{file}: the epoch of its optimizer's state is unknown ({shorten(repr(epoch))}), expected PaddleViT's "
            f"'epoch', a whole number; -pretrained={file} starts a new training run with its weights"
        )
    average = content.get("model_ema")
    scaler = content.get("amp_grad_scaler")
    return PaddleViTTraining(
        epoch,
        _convert(content["model"], file),
        _convert(average, file) if isinstance(average, dict) else None,
        {kind: _convert(state, file) for kind, state in _find_accumulators(content, file).items()},
        scaler if isinstance(scaler, dict) and {"scale", "incr_count"} <= scaler.keys() else {},
    )


def _named_array(pair: Any) -> tuple[str, Any]:
    array = unpack_tensor(pair)
    return expect(pair[0], str), array


class _NameReader(PickleReader):
    """Keeps the automatic name of each tensor inside nested containers, as (name, array)."""

    calls = {**PickleReader.calls, **{(module, "tuple"): _named_array for module in ("builtins", "__builtin__")}}


def _convert(state: Mapping[str, Any], file: Path) -> SourceWeights:
    return weights_from_mapping(state)._replace(name=str(file), in_paddle_layout=True)


def _find_accumulators(content: Mapping[str, Any], file: Path) -> dict[str, dict[str, np.ndarray]]:
    """Return the optimizer's accumulators by kind and weight; the file names them by the tensors' automatic names."""
    weights = {entry[0]: name for name, entry in content["model"].items() if isinstance(entry, tuple)}
    accumulators: dict[str, dict[str, np.ndarray]] = {}
    for key, value in content["optimizer"].items():
        match, array = _ACCUMULATOR.fullmatch(str(key)), as_array(value)
        if match is None or array is None:
            continue
        if match[1] not in weights:
            raise UserError(
                f"{file}: its optimizer's {shorten(str(key))} does not belong to a weight; -pretrained={file} "
                "starts a new training run with its weights"
            )
        accumulators.setdefault(match[2], {})[weights[match[1]]] = array
    return accumulators
