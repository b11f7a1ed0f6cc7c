"""The training run: trainer and training, steps, checkpointer, optimizer, schedule, precision; it knows no subject."""
