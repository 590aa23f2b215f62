"""Every request to a store: counted, limited in time, retried."""
