"""What ``prepare images`` does: ``layout`` (detect layout), ``check`` (read all), ``shards`` (pack as tar files)."""
