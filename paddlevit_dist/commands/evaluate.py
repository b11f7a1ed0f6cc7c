"""``python -m paddlevit_dist evaluate FLAGS``: the main job with ``-eval``."""

from collections.abc import Callable, Sequence

from ..registry.features import find_function
from ..settings.command_line import takes_next_word
from . import train


def run(arguments: list[str]) -> None:
    """Evaluate once, on all devices, the weights of -pretrained or -resume, or an exported model.

    A word alone names the exported model. All other arguments are flags of the main job.
    """
    train.run(["-eval", *with_settings([word for word in arguments if word not in ("-eval", "--eval")])])


def with_settings(words: Sequence[str]) -> list[str]:
    """Return the arguments with positional ones translated to settings by the extensions.

    A positional argument is neither a flag, nor a key, nor the value of a key.
    """
    parse_exported: Callable[[str], str | None] | None = find_function("parse_evaluated_argument")
    is_value, settings = False, []
    for word in words:
        is_free = not is_value and not word.startswith("-")
        setting = parse_exported(word) if is_free and parse_exported is not None else None
        is_value = setting is None and not is_value and takes_next_word(word)
        settings.append(setting or word)
    return settings
