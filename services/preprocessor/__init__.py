"""Validates, renders, tokenizes and builds the structural tag of a request."""
