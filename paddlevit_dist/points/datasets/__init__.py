"""Data sets of scenes that were prepared before: ``scenes`` for any, ``scannet`` for ScanNet."""
