"""Kinds of our own that an API server is taught: their schemas, made of the same tables that read them."""
