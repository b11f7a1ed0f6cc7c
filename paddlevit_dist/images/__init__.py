"""Pictures with one class each: data sets, transforms, models and the classification task."""
