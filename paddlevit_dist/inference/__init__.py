"""Prediction with trained weights for data without labels, and evaluation-only runs.

- ``evaluation``: runs that only evaluate, and their saved predictions
- ``trained``: weights with their configuration and the metadata of their training data
- ``predictor``: prediction of batches, with unreadable inputs reported; ``Predictor`` for programs
- ``rows``: saved predictions and their tables
"""
