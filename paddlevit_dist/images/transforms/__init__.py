"""Transforms from an image to a network's input array; all randomness comes from the sample's generator."""
