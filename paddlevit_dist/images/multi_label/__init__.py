"""Images with several labels each, known or not."""
