"""What pods ask for, in the model's words: amounts, terms, devices, and the closed list of what is refused."""
