"""Filters on rows, and the manifests, files and buckets that they rule out."""
