"""All that is taken from pypaimon, so that a new release of it breaks only this package."""
