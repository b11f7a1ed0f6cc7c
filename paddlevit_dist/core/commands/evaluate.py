"""``python -m paddlevit_dist evaluate RUN``: the main job with ``-eval``."""

from . import train


def run(arguments: list[str]) -> None:
    """Evaluate once, on all devices, a run, an exported model, or the weights of -pretrained or -resume.

    A word alone names the run's folder or the exported model. All other arguments are flags of the main job.
    """
    train.run(["-eval", *(word for word in arguments if word not in ("-eval", "--eval"))])
