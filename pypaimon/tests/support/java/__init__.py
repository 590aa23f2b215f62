"""Live Java Paimon, random histories for it, and files that Java wrote."""
