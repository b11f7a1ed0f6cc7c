"""Image models: one file per family, and what families share.

- ``variants``: all names and what they stand for, without Paddle; ``key_names``: other people's names of parameters
- ``layers``: parts; ``resampling``: weights for other sizes; ``options``: keys of MODEL; ``counting``: costs

A new family is a ``contracts.model.Model`` in a file here, a table in ``variants`` and a line in the registry.
"""
