"""Work of ``prepare images``: ``source`` (find the images and read all), ``shards`` (pack them as tar files)."""

__all__: list[str] = []  # the command prepare images
