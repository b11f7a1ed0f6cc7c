"""Furnished rooms generated from a seed: ``dataset``, ``generator``; placement in ``plan`` and ``furnishing``, shapes
and sampling in ``furniture`` and ``surfaces``."""
