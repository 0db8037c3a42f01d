"""What the cache is made of: objects, owners, pods alike by their parts, names by names, places on their way, seats."""
