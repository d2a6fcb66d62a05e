"""The HTTP front: OpenAI-compatible requests in, events out as JSON or server-sent events."""
