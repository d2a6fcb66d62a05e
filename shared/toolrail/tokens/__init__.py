"""Text to token ids and back: a model's tokenizer without an engine.

`Tokenizer` is one model's tokenizer, shared by everybody in a process; `Detokenizer` turns the ids
of one choice into text as they come. What this does not do: chat templates, and choosing which
special tokens matter (the caller says what to keep).
"""

from __future__ import annotations

from toolrail.tokens.detokenizer import Detokenizer
from toolrail.tokens.tokenizer import Tokenizer

__all__ = ["Detokenizer", "Tokenizer"]
