"""Feeds for training: a table whose rows several workers share, for the loaders of PyTorch, and for Ray Data."""
