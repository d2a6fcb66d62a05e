"""Every model family, by name: what one model speaks, as functions of its record.

`dialect(tool_parser, reasoning_parser)` is the only way in for services and commands.
"""
