"""Drawn samples, batches and predictions."""
