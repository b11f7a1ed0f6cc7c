"""Classification of images."""
