"""``python -m paddlevit_dist evaluate FLAGS``: the main job with ``-eval``."""

from . import train


def run(arguments: list[str]) -> None:
    """Evaluate once, on all devices, the weights given by -pretrained or -resume; takes the main job's flags."""
    train.run(["-eval", *(word for word in arguments if word not in ("-eval", "--eval"))])
