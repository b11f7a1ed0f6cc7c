"""What ``prepare images`` does: ``source`` (find the pictures and read all), ``shards`` (pack them as tar files)."""
