"""The bus: subjects, the port, and its NATS and in-memory implementations."""
