"""Saved progress: Java's consumer files, and what one reader may write into them, and when."""
