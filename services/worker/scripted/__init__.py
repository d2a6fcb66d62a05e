"""The engine that plays a script: no model, the rest as real."""
