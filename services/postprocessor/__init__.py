"""Owns a stream from hand-over to last word: ids of a worker in, events for a gateway out."""
