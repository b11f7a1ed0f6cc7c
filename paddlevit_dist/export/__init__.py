"""Trained models for other programs: Paddle Inference, PaddleX, ONNX; and the score of exported models, also of those
that others made. An extension: it can be deleted (see ``extension``).

- ``command``: the command ``export``
- ``pixels``: a model of normalized images as one of their pixels; ``differences``: how far outputs are apart
- ``onnx_files``: from Paddle's inference model to an ONNX file, and what that computes on the CPU
- ``half``: the same graph in float16, with float32 where 11 bits are too few
- ``graph``: an ONNX graph that can be edited, and its simplification
- ``fusion``: the same graph with onnxruntime's own operators, and fewer passes over memory around them
- ``descriptions``: what is written beside it, for people and for PaddleX
- ``settings``, ``files``: for ``evaluate MODEL.onnx``: the keys, and which files are meant
- ``functions``: what such files compute; ``scoring``: in the model's place in an evaluation, with the difference to the
  trained weights
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..extension import Extension

if TYPE_CHECKING:
    import paddle

    from ..engine.trainer import Trainer
    from ..tasks.callback import Callback
    from ..tasks.task import Task


class ExportExtension(Extension):
    """The command export, and the evaluation of exported models."""

    evaluated_key = "EXPORTED"
    commands = {"export": "a trained model for Paddle Inference, PaddleX or ONNX"}

    def run_command(self, name: str, words: list[str]) -> None:
        from .command import run

        run(words)

    def callbacks(self, run: Trainer, trains: bool) -> Sequence[Callback]:
        if trains or not run.config["EXPORTED"]:
            return ()
        from .scoring import ExportComparison

        return (ExportComparison(run),)

    def parse_evaluated_argument(self, word: str) -> str | None:
        from .files import parse_evaluated_argument

        return parse_evaluated_argument(word)

    def evaluated_model(self, config: Any, task: Task) -> paddle.nn.Layer:
        from .scoring import exported_model

        return exported_model(config, task)

    def load_evaluated(self, run: Trainer, model: paddle.nn.Layer) -> tuple[str | Path, list[str]] | None:
        from .scoring import in_place_of_weights

        return in_place_of_weights(run, model)


EXTENSION = ExportExtension()

__all__ = ["EXTENSION"]
