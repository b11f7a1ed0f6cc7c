"""The state of a run (saving, verifying, resuming) and the reading of weights from files that nobody vouches for."""
