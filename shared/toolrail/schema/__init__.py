"""JSON Schema work without I/O: preflight, normaliser, enforcement report."""
