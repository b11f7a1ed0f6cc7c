"""``python -m paddlevit_dist evaluate FLAGS``: the main job with ``-eval``."""

from __future__ import annotations

from typing import List

from . import train


def run(arguments: List[str]) -> None:
    """Evaluate once, on all devices, the weights that -pretrained or -resume names; takes the main job's flags."""
    train.run(["-eval", *(word for word in arguments if word not in ("-eval", "--eval"))])
