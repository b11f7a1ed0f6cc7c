"""Configuration: defaults, then YAML files (BASE first), then the command line; merged, checked and frozen once.

The keys are fields of classes: in ``every_run`` for every task, in ``images/settings.py`` and others for one kind.

- ``section``, ``key``, ``table``: a class of keys, the row of one key, all keys
- ``custom_keys``, ``user_modules``: additions of users
- ``command_line``, ``files``, ``recipes``: sources of values; ``help``: the help pages
- ``merge``, ``checks``: merge all sources, check values against one another

``load(argv)`` reads the command line and the files it names, checks every value against the table of keys, checks
values against one another, and freezes. Nothing here imports paddle.

"""

from .key import Key, Range
from .merge import Configuration, dump_yaml, load
from .recipes import RecipeMissing, folder, title
from .table import default_config

EXAMPLE = str(folder() / "vit_digits.yaml")

__all__ = ["Configuration", "EXAMPLE", "Key", "Range", "RecipeMissing", "default_config", "dump_yaml", "load", "title"]
