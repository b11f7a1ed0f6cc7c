"""Names of models, datasets, tasks and other parts, as strings: nothing here imports Paddle.

- ``manifest``: what a feature brings; ``features``: the folders that have one
- ``names``: the registry: all names, and what each stands for; ``lookup`` finds a name in it
- ``model_names``: names of models, and the input of their weights; ``model_sources``: models of other packages
- ``register``, ``plugins``: names and modules of users
"""

from ..runtime.lazy_names import lazy_names

__all__, __getattr__, __dir__ = lazy_names(__name__, __file__)
