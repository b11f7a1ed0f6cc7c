"""Images: ``data``, ``transforms``, ``models``, ``classification`` (the task), ``prepare`` and ``settings``."""
