"""What a run shows and keeps: meters, progress, logs, metrics and the run record."""
