"""Names of models, datasets, tasks and other parts, as strings: nothing here imports Paddle.

- ``lookup``: the tables of names; finds a name and imports what it stands for
- ``models``, ``model_names``: names of models, and the input of their weights; ``other_names``: their other spellings;
  ``model_sources``: models of other packages
- ``register``, ``plugins``: names and modules of users
- ``extension``: the folders that can be deleted
"""

from ..runtime.lazy_names import lazy_names

_NAMES = {"resolve": "lookup"}
__all__ = sorted(_NAMES)
__getattr__, __dir__ = lazy_names(__name__, _NAMES)
