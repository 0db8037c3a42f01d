"""Which pods are one gang, by their marks and owners, and what is known of members that do not exist yet."""
