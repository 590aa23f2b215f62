"""Change records of databases (Debezium, Canal, Maxwell) as rows with kinds: a module for each format, and the rest."""
