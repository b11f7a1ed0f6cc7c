"""Compiled passes: Paddle traces a model once and runs the program from then on."""

from __future__ import annotations

import paddle


def compile_passes(model: paddle.nn.Layer) -> None:
    """Replace the model's forward pass by its program, in place; parameters, names and state stay as they are."""
    # In the order of the program: side by side, dropout and stochastic depth would draw from the generator in an order
    # that differs from step to step, and no step could be repeated.
    paddle.set_flags({"FLAGS_new_executor_serial_run": True})
    paddle.jit.to_static(model, full_graph=True)
