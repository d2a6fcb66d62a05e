"""HTTP in front: Chat Completions over server-sent events or as one object."""
