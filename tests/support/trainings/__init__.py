"""Short trainings and evaluations, and what may happen to them."""
