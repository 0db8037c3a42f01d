"""Text to plain data, YAML or JSON, with the line of every value on demand."""
