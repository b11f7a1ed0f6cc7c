"""What ``prepare images`` does: ``source`` (find the images and read all), ``shards`` (pack them as tar files)."""
