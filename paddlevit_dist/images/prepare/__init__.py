"""Implementation of ``prepare images``: ``source`` (find and read the images), ``shards`` (write them to tar files)."""

__all__: list[str] = []  # the command prepare images
