"""Image data sets, each ``Dataset(data_path, split, cache_folder)`` with ``read(index) -> (picture, label)``.

- ``digits``: 1,797 handwritten digits inside the package.
- ``idx``: ``mnist`` and ``fashion_mnist`` from their published files.
- ``imagenet``: lists of ``path label`` lines, or class folders named by WordNet id.
- ``folder``: own pictures in one folder per class.

All are plain objects without Paddle. Their pickle holds file names and scalars only; pixels, paths and labels are
memory mapped on first use, so any number of processes shares one copy.
"""
