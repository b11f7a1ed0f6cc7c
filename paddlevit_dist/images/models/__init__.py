"""Image models: one file per family, plus shared modules.

- ``variants``: all names and their arguments, without Paddle; ``key_names``: third-party parameter names
- ``classifier``: what families have in common; ``layers``, ``attention``: parts; ``options``: keys of MODEL
- ``resampling``: weights for other sizes; ``counting``: costs

A new family is a ``tasks.model.Model`` in a file here, a table in ``variants`` and a line in the registry.
"""
