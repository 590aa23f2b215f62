"""The feed of PyTorch's loaders (extra `torch`)."""
