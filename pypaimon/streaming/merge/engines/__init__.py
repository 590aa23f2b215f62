"""One module per merge engine."""
