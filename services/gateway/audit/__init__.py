"""Audit records: what was asked and answered, one JSON object a request, kept in a sink."""
