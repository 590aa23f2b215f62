"""Streams of the members of a consumer group: each reads the slots that it has, and others take them over."""
