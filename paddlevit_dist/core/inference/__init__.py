"""Prediction with trained weights for data without labels, and evaluation-only runs.

- ``evaluation``: runs that only evaluate, and their saved predictions
- ``trained``: weights with their configuration and the metadata of their training data
- ``changed_keys``: what flags and keys may change where weights are used
- ``input_batches``: prediction of batches, with unreadable inputs reported; ``rank_prediction``: of a command's inputs
- ``predictor``: ``Predictor`` for programs
- ``ensemble``: prediction by several models
- ``rows``: saved predictions and their tables
"""
