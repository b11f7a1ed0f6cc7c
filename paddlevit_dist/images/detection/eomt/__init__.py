"""EoMT for instance segmentation: ``network``, with its losses of ``mask_queries``."""
