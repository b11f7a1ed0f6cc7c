"""``python -m paddlevit_dist evaluate FLAGS``: the main job with ``-eval``."""

from collections.abc import Sequence

from .. import extension
from ..settings.command_line import takes_next_word
from . import train


def run(arguments: list[str]) -> None:
    """Evaluate once, on all devices, the weights given by -pretrained or -resume, or what a word alone names: an
    exported model. Takes the main job's flags."""
    train.run(["-eval", *with_settings([word for word in arguments if word not in ("-eval", "--eval")])])


def with_settings(words: Sequence[str]) -> list[str]:
    """The same words, where one that is neither a flag, nor a key, nor the value of one, becomes the setting that an
    extension knows it stands for."""
    is_value, settings = False, []
    for word in words:
        is_free = not is_value and not word.startswith("-")
        found = extension.parse_evaluated_argument(word) if is_free and extension.has("export") else None
        is_value = found is None and not is_value and takes_next_word(word)
        settings.append(found or word)
    return settings
