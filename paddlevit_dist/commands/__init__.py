"""The command line, one command per file. Commands for one modality are in its folder: see the manifests.

- ``train``, ``evaluate``: the main job
- ``scored``: what commands that score result files of any program have in common
- ``predict``: apply trained weights to data without labels
- ``convert``: conversion of weights
- ``inspect_data``, ``inspect_model``, ``inspect_recipes``, ``version``: show samples, models, recipes, versions
- ``schema``: JSON schema of the keys, for editors
- ``parser``: argument parser of all commands except train and evaluate
"""

from collections.abc import Callable

from ..registry.features import COMMANDS
from ..runtime.lazy_names import import_object


def list_commands() -> list[str]:
    """Return the names of all commands, those with the same first word together."""
    first_words = list(dict.fromkeys(name.partition(" ")[0] for name in COMMANDS))
    return sorted(COMMANDS, key=lambda name: first_words.index(name.partition(" ")[0]))


def import_command(command: str) -> Callable[[list[str]], None]:
    """Import the function that runs a command; its argument is the list of words after the command's name."""
    return import_object(COMMANDS[command][0])


__all__ = ["COMMANDS", "import_command", "list_commands"]
