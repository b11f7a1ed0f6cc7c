"""Configuration: defaults, then YAML files (BASE first), then the command line; merged, checked and frozen once.

The keys are fields of classes: in ``every_run`` and ``optimizer_keys`` for every task, in ``images/settings.py`` and
others for one kind.

- ``key``: a key as a field of a class; ``values``: the parsing of its value
- ``table``: tables of keys with their rules; the tree of a configuration and its YAML
- ``custom_keys``, ``user_modules``: additions of users
- ``command_line``, ``files``: sources of values; ``help``: the help pages
- ``merge``: merge all sources, check values against one another; ``names``: names of task, dataset and model

``load(argv)`` reads the command line and the files it names, checks every value against its key, checks values
against one another, and freezes. It imports the keys of the chosen task only. Nothing here imports paddle.
"""

from ..runtime.lazy_names import lazy_names

__all__, __getattr__, __dir__ = lazy_names(__name__, __file__)
