"""Helpers of training and evaluation. Each folder can be deleted; none imports another.

- ``compare``: runs sample by sample, several seeds, searches; ``report``: the HTML page of a run
- ``debug``: ``doctor``, ``-selftest``, profiles; ``leakage``: images of training in validation
- ``export``: models for other programs
- ``cpu_kernels``, ``gpu_kernels``: faster layers
"""
