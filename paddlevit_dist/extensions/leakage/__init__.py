"""Find validation samples that are also in the training set, and evaluate without them.

This is an extension: the folder can be deleted (see ``registry.features``).

- ``perceptual``: perceptual hash of an image, and similarity of two images; ``comparing``: nearest hashes
- ``registration``: proof by registered pixels that two similar images are copies
- ``fingerprints``: digests and hashes of all samples of a dataset, also of scenes and volumes
- ``search``: pairs of copies in two datasets
- ``formatting``: the command ``inspect leaks``, and the lines that ``inspect data`` adds
- ``evaluation``: ``evaluate -exclude_leaked``; ``settings``: keys
"""
