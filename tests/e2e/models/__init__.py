"""A service with a model from a bucket, on a local cloud of its own."""
