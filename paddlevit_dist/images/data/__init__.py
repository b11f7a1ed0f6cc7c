"""Image datasets, each ``Dataset(data_path, split, cache_folder)`` with ``read(index) -> (image, label)``.

The datasets are plain objects that do not use Paddle. Only file names and scalars are pickled; pixels, paths and labels
are memory-mapped on first use, so any number of processes share one copy.

A dataset of image files also has ``encoded(index)``, the file's bytes, ``num_bytes(index)`` and a ``reading`` that can
be set (see ``reading``). ``skipped_files``, if not None, describes the files that are not read.
"""
