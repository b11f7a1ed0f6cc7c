"""From a picture to the array that a network takes; everything random comes from the sample's generator."""
