"""Export trained models to Paddle Inference, PaddleX and ONNX, and evaluate exported models of any program.

This extension can be deleted (see ``extension``).

- ``command``: the command ``export``
- ``pixels``: move the normalization of images into the model; ``differences``: compare outputs
- ``onnx_files``: convert Paddle's inference model to an ONNX file, and compute it on the CPU
- ``half``: convert a graph to float16, with float32 where 11 bits are too few
- ``graph``: editable ONNX graph, and its simplification
- ``fusion``: replace parts of a graph by onnxruntime's fused operators, with fewer passes over memory
- ``descriptions``: description files of an exported model, for users and for PaddleX
- ``settings``, ``files``: keys and file lookup of ``evaluate MODEL.onnx``
- ``functions``: compute exported models; ``scoring``: evaluate them, with the difference to the trained weights
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
    """Command export, and evaluation of exported models."""

    evaluated_key = "EXPORTED"
    commands = {"export": "export a trained model to Paddle Inference, PaddleX or ONNX"}

    def run_command(self, name: str, words: list[str]) -> None:
        """Run the command ``export``."""
        from .command import run

        run(words)

    def callbacks(self, run: Trainer, trains: bool) -> Sequence[Callback]:
        """Return the comparison with the trained weights for evaluations of exported models."""
        if trains or not run.config["EXPORTED"]:
            return ()
        from .scoring import ExportComparison

        return (ExportComparison(run),)

    def parse_evaluated_argument(self, word: str) -> str | None:
        """Translate the path of an exported model to ``EXPORTED=PATH``."""
        from .files import parse_evaluated_argument

        return parse_evaluated_argument(word)

    def evaluated_model(self, config: Any, task: Task) -> paddle.nn.Layer:
        """Load the exported model that the configuration names."""
        from .scoring import load_exported_layer

        return load_exported_layer(config, task)

    def load_evaluated(self, run: Trainer, model: paddle.nn.Layer) -> tuple[str | Path, list[str]] | None:
        """Load the trained weights that the exported model is compared with."""
        from .scoring import load_comparison_weights

        return load_comparison_weights(run, model)


EXTENSION = ExportExtension()

__all__ = ["EXTENSION"]
