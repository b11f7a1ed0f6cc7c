"""Images in Parquet and Arrow files, as Hugging Face's library ``datasets`` writes and publishes them."""
