"""The Anthropic Messages API: its answers, streamed and not, and its errors."""
