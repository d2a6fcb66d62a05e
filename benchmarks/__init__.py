"""Measurements of the product. Run one with `python -m benchmarks.<name>`."""
