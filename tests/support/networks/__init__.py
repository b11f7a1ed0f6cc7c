"""Small networks, and the implementations that they are compared with."""
