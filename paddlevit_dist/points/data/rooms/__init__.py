"""Furnished rooms made up from a seed: ``dataset``, ``generator``; ``plan`` and ``furnishing`` place, ``furniture`` and
``surfaces`` shape and sample."""
