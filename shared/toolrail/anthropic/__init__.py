"""The request side of the Anthropic Messages API: bodies become `ChatRequest`s, without any I/O."""
