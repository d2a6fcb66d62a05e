"""The programs, run from the tree; never installed."""
