"""The command prepare images: check pictures, or pack them as tar files."""
