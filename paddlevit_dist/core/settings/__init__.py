"""Configuration: defaults, then YAML files (BASE first), then the command line; parsed, merged and checked once.

``configuration.load(argv)`` takes three steps and freezes the result. It imports the keys of the chosen task only.

- ``parse``: texts of ``command_line`` and ``files`` (found by ``recipes``) become typed settings, each with its origin
- ``merge``: settings become one tree of values, where the later one wins; ``names``: of task, dataset and model
- ``check``: values against one another, and keys that the run does not read

The keys are fields of classes: in ``every_run`` and ``optimizer_keys`` for every task, in ``images/settings.py`` and
others for one kind.

- ``key``: a key as a field of a class; ``values``: the parsing of its value; ``model_options``: the key with options
- ``table``: tables of keys with their rules; the tree of a configuration; ``yaml_output``: its YAML
- ``key_tables``: which tables a run reads
- ``custom_keys``, ``user_modules``: additions of users
- ``help``: the help pages

Nothing here imports paddle.
"""

from ..runtime.lazy_names import lazy_names

__all__, __getattr__, __dir__ = lazy_names(__name__, __file__)
