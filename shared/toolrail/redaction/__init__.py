"""Blacks out secrets and personal data in what is kept of requests and answers.

One redactor for audit records and for the content of traces. It takes JSON values and texts, finds
what the rules name (see `rules` and `builtin`), and puts `[redacted:RULE]` in its place; images,
sound and files are replaced by their size and hash. A rule costs time linear in the text.

It does what it can: a secret that has no form of its own, that is encoded, or that is spread over
several messages is not found. One that is spread over parts of the same message is.
"""

from toolrail.redaction.redactor import ContentMode as ContentMode
from toolrail.redaction.redactor import Redactor as Redactor
from toolrail.redaction.redactor import redactor as redactor
from toolrail.redaction.rules import PatternRule as PatternRule
from toolrail.redaction.rules import Rules as Rules
