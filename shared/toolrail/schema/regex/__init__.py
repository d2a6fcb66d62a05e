"""Regular expressions of JSON Schema: parsed, anchored, matched, and written for the engine."""
