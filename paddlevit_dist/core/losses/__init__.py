"""Losses over elements with or without a class label: points of a scene, pixels of images.

Sums and their divisors are returned separately, as the engine divides by counts over all ranks and micro-batches.
Only ``choose_cross_entropy`` makes the host wait for the device.
"""

from ..runtime.lazy_names import lazy_names

__all__, __getattr__, __dir__ = lazy_names(__name__, __file__)
