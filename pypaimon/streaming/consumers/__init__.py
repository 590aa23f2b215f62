"""Saved progress in Java's consumer files: what one reader writes into them, and when."""
