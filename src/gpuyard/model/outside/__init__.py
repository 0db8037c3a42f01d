"""What meets the model from outside: time and chance, text that enters, the collector of Python itself."""
