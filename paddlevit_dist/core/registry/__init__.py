"""Names of models, datasets, tasks and other parts, as strings: nothing here imports Paddle.

- ``manifest``: what a feature brings; ``features``: the manifests that are there, their commands and hooks
- ``lookup``: the tables of names; finds a name and imports what it stands for
- ``model_names``: names of models, and the input of their weights; ``model_sources``: models of other packages
- ``register``, ``plugins``: names and modules of users
"""

from ..runtime.lazy_names import lazy_names

__all__, __getattr__, __dir__ = lazy_names(__name__, __file__)
