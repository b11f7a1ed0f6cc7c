"""Weights and states on disk: nothing in a file is ever executed.

- ``store``: checkpoints of a run: written whole or not at all, linked, pruned; ``finding``: which one a run continues
- ``content``: what is in the directory of one: verified, and believed where it fits
- ``load``: weights of any origin into a model, with a report of every name
- ``weights``: which file a path means, and which of its content are weights; ``published`` for names, ``download``
- ``unpickling`` (Paddle's), ``torch_files`` (PyTorch's), ``array_files`` (numpy's, safetensors): the formats
"""

from ..runtime.lazy_names import lazy_names

_NAMES = {
    "LoadReport": "load",
    "load_weights": "load",
    "read_weights": "weights",
}
__all__ = sorted(_NAMES)
__getattr__, __dir__ = lazy_names(__name__, _NAMES)
