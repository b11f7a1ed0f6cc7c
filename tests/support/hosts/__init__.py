"""What is around a run: servers, clones, installations, a user's modules."""
