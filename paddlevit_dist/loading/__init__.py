"""From a data set to batches: memory-mapped stores, batch sampler, loader."""
