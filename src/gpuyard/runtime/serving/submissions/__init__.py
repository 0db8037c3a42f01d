"""How jobs get in: what one call may ask, what a document means, rights and caps, and then taken in whole or not."""
