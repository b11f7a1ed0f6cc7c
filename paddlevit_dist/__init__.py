"""Train and evaluate vision models with PaddlePaddle on one GPU or many machines, with reproducible results.

The public names are imported on first use, so that ``import paddlevit_dist`` alone does not load Paddle.
"""

import os
import sys
import warnings
import zlib

from .core.runtime.lazy_names import lazy_names
from .core.runtime.processor import choose_kernels
from .core.runtime.version import __version__ as __version__

# Used once before Paddle's import: 2.6's library bundles another zlib, to which this one would be bound, and crash.
if "paddle" not in sys.modules:
    zlib.decompress(zlib.compress(b""))

choose_kernels()

# Paddle would build each exception that leaves a traced network again, from one text, and lose Ctrl-C and classes with
# other arguments. Read when it would do so.
os.environ.setdefault("TRANSLATOR_DISABLE_NEW_ERROR", "1")

# On import, Paddle warns about a missing tool for compiling operators, which this package does not do.
warnings.filterwarnings(
    "ignore", "No ccache found", UserWarning, module=r"paddle\.utils\.cpp_extension\.extension_utils"
)

__all__, __getattr__, __dir__ = lazy_names(__name__, __file__)
