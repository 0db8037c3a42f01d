"""Where the model meets the outside: time and chance, text that enters, phrases that leave, Python's own collector."""
