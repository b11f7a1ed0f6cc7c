"""What ``prepare images`` does: ``layout`` (what is there), ``check`` (read all), ``shards`` (pack as tar files)."""
