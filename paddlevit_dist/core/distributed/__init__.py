"""All communication between ranks. Only this package and ``launch`` import ``paddle.distributed``.

Importing this package does not import Paddle; each name below loads its module on first use.

- ``exchange``, ``collectives``, ``world``: messages between ranks
- ``wrapping``, ``batch_norm``, ``batch_moments``: the data-parallel model
- ``stops``: all ranks stop, or save, after the same step
"""

from ..runtime.lazy_names import lazy_names

__all__, __getattr__, __dir__ = lazy_names(__name__, __file__)
