"""Predictions of trained weights for data without labels, and how they are written.

- ``evaluation``: a run that only evaluates, and what it saves of what it predicts
- ``trained``: weights with their configuration and what they know of the data that they were trained on
- ``predictor``: batches of inputs, those that cannot be read among them; ``Predictor`` for programs
- ``rows``: what is predicted so far, and the tables
"""

from ..runtime.lazy_names import lazy_names

_NAMES = {
    "Predictor": "predictor",
}
__all__ = sorted(_NAMES)
__getattr__, __dir__ = lazy_names(__name__, _NAMES)
