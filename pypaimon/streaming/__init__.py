"""Follow an Apache Paimon table from Python: exact, cheap, fast streaming reads."""
