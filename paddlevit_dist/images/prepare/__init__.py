"""What ``prepare images`` does: ``layout`` (what lies there), ``check`` (read all), ``shards`` (pack as tar files)."""
