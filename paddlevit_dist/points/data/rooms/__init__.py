"""Rooms made up from a seed: surfaces, furniture built of them, rooms furnished with it, and their data set."""
