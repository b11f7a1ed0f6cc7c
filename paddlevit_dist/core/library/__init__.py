"""The package as a library for programs and notebooks.

- ``runs``: train, evaluate and predict in the calling process
- ``data``: datasets of recipes, for other training loops
- ``models``: models with their weights
- ``meters``: scores of outputs of any program; ``checks``: validation of their arguments
"""

from ..runtime.lazy_names import lazy_names

__all__, __getattr__, __dir__ = lazy_names(__name__, __file__)
