"""Images with segments: the type of their truth, datasets that read it, and the samples of a network."""
