"""Pictures with boxes: datasets, transforms and batches."""
