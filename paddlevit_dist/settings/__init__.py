"""Configuration: defaults, then YAML files (BASE first), then the command line; merged, checked and frozen once. The
keys are fields of classes: ``every_run`` has those of every task, ``images/settings.py`` and so on those of their own.

- ``section``, ``key``, ``table``: a class of keys, the row of one, and all of them
- ``custom_keys``, ``user_modules``: what users add
- ``command_line``, ``files``, ``recipes``: where values come from; ``help``: what ``-h`` says of them
- ``merge``, ``checks``: one configuration of all, and what must fit together in it

``load(argv)`` does it all: read the command line, read the files it names, check every value against the table of
keys, check what must fit together, freeze. Nothing here imports paddle.
"""

from .key import Key, Range
from .merge import Configuration, dump_yaml, load
from .recipes import RecipeMissing, folder, title
from .table import default_config

EXAMPLE = str(folder() / "vit_digits.yaml")

__all__ = ["Configuration", "EXAMPLE", "Key", "Range", "RecipeMissing", "default_config", "dump_yaml", "load", "title"]
