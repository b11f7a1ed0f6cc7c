"""Masked autoencoders: a network that sees a part of each image and completes it."""
