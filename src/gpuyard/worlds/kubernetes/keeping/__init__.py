"""What the cache keeps things in: pods alike by what they share, names by names, places on their way, devices."""
