"""Networks on sparse tensors: one file per family, and how a name becomes a network."""
