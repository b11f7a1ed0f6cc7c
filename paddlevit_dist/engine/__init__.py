"""The training run: task protocol, trainer, evaluator, optimizer, schedule, precision; it knows no subject."""
