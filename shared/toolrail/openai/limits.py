"""The bounds of a request, each with its reason.

Where the published schema states a bound it is taken over; the others keep one request from costing
more than its share.
"""

from __future__ import annotations

from typing import Final

MAX_CHOICES: Final = 128
"""`n`: the published bound."""

MAX_STOP_STRINGS: Final = 32
"""The published bound is 4; peers allow 32, and matching costs the same for either."""

MAX_STOP_CHARS: Final = 4096
"""A stop string is held back in the stream: longer ones would delay visible text for ever."""

MAX_STOP_TOKEN_IDS: Final = 128
MAX_BAD_WORDS: Final = 128
MAX_LOGIT_BIAS: Final = 1024
MAX_TOP_LOGPROBS: Final = 20
"""`top_logprobs`: the published bound."""

MAX_MESSAGES: Final = 20_000
"""Each costs a template some tokens: more do not fit any context worth their rendering."""

MAX_PARTS: Final = 100_000
"""Content parts of all messages together; counted in bodies that are long enough to have more."""

MAX_CALLS: Final = 1024
"""Calls of one message of history."""

MAX_TOOLS: Final = 1024
"""The published bound is 128; lists merged from several tool servers are longer."""

MAX_MODEL_CHARS: Final = 256

MAX_SCHEMA_BYTES: Final = 4 << 20
"""One JSON Schema as text. A strict preflight may pass 2.9 MB, all of it escapes."""

MAX_SCHEMAS_BYTES: Final = 8 << 20
"""All schemas of a request together."""

MAX_JSON_CONTAINERS: Final = 100_000
"""Opening brackets in one generic JSON text: building objects, not reading text, takes the time."""

MAX_JSON_DEPTH: Final = 256
"""Nesting of schemas, history arguments and template variables; keeps recursion safe below."""

MAX_GUIDED_CHARS: Final = 64 << 10
"""A guided regex, grammar, or all guided choices together."""

MAX_INPUT_CHARS: Final = 8 << 20
"""Input of one custom call of history: as many as arguments may have bytes."""

MAX_SEED: Final = (1 << 63) - 1 - MAX_CHOICES
"""Choice i is sampled with seed + i, and engines take 63 bits."""
