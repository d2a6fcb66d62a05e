r"""glm47: GLM-4.5, 4.6, 4.7, 5.

`check</think>On it.<tool_call>get_weather<arg_key>city</arg_key><arg_value>Paris</arg_value>
</tool_call>` (one line; GLM-4.5 writes newlines between the tags). Six tags and the think tags are
tokens. Values are raw text typed by the schema; a value runs to its own closer.
"""

from __future__ import annotations

from typing import Final

from toolrail.syntax import Args, Lit, Name, ReasoningMarkers, Syntax, XmlStyle
from toolrail.templated import templated

GLM_XML: Final = XmlStyle(
    style="glm_xml",
    open="<arg_key>",
    key_end="</arg_key>",
    value_open="<arg_value>",
    close="</arg_value>",
    prefer="string",
)
SYNTAX: Final = Syntax(
    call=(Lit("<tool_call>"), Name(), Args(GLM_XML), Lit("</tool_call>")),
    strays=("<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"),
)

FAMILY: Final = templated(
    name="glm47",
    source="https://huggingface.co/zai-org/GLM-4.7/blob/main/chat_template.jinja",
    syntax=SYNTAX,
    reasoning=ReasoningMarkers("<think>", "</think>"),
    reasoning_names=("glm45", "basic"),
    special=(
        "<tool_call>",
        "</tool_call>",
        "<arg_key>",
        "</arg_key>",
        "<arg_value>",
        "</arg_value>",
        "<think>",
        "</think>",
    ),
)
