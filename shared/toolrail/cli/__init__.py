"""The `toolrail` command."""
