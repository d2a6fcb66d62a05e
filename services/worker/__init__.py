"""Runs the engine: token ids in, token ids out; knows no model family."""
