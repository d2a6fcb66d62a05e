"""Owns a stream: detokenizes, parses, numbers its events."""
