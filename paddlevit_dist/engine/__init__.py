"""The training run: task protocol, trainer, evaluator, optimizer, schedule, precision. Knows nothing about any subject."""
