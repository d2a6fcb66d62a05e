"""Toolrail: tool calls on rails. The library behind the services; it imports none of them."""
