"""The request side of the OpenAI APIs: types, validation, tag policy. No I/O."""
