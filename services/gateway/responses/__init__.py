"""`/v1/responses`: the response side of the Responses API."""
