"""Filters: which rows they keep, and which manifests and files they can leave unread."""
