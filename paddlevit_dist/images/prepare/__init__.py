"""Implementation of ``prepare images``: ``source`` (find and read the images), ``shards`` (write them to tar files)."""
