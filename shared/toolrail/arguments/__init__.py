"""How arguments are read from the wire and written as JSON text, by encoding style."""
