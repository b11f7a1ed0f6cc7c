"""Train and evaluate vision models with PaddlePaddle on one GPU or many machines, with reproducible results.

The public names are imported on first use, so that ``import paddlevit_dist`` alone does not load Paddle.
"""

import sys
import zlib

from .core.runtime.lazy_names import lazy_names
from .core.runtime.version import __version__ as __version__

# Used once before Paddle's import: 2.6's library bundles another zlib, to which this one would be bound, and crash.
if "paddle" not in sys.modules:
    zlib.decompress(zlib.compress(b""))

__all__, __getattr__, __dir__ = lazy_names(__name__, __file__)
