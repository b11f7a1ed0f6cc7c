"""The command line, one command per file. Commands for one modality are in its folder: see the manifests.

- ``overview``: the help page of all commands
- ``train``, ``evaluate``: the main job; ``run_folder``: a run's folder among their words
- ``scored``: what commands that score result files of any program have in common
- ``predict``: apply trained weights to data without labels
- ``convert``: conversion of weights
- ``inspect_data``, ``inspect_model``, ``inspect_recipes``, ``version``: show samples, models, recipes, versions
- ``schema``: JSON schema of the keys, for editors
- ``parser``: argument parser of all commands except train and evaluate
"""

from collections.abc import Callable

from ..registry.names import REGISTRY
from ..runtime.lazy_names import import_object
from .overview import format_overview, format_rows, list_commands

COMMANDS = REGISTRY.commands  # name -> function and help text


def import_command(command: str) -> Callable[[list[str]], None]:
    """Import the function that runs a command; its argument is the list of words after the command's name."""
    return import_object(COMMANDS[command][0])


__all__ = ["COMMANDS", "format_overview", "format_rows", "import_command", "list_commands"]
