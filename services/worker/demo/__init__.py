"""The demo model: SmolLM2-135M-Instruct, converted once from its GGUF file and cached."""
