"""The grammar of patches that a widely used coding agent declares for its one custom tool."""

from __future__ import annotations

from functools import cache

import lark

from toolrail.tools import INPUT_SCHEMA, InputGrammar, Tool

PATCH = r"""
start: begin_patch hunk+ end_patch
begin_patch: "*** Begin Patch" LF
end_patch: "*** End Patch" LF?

hunk: add_hunk | delete_hunk | update_hunk
add_hunk: "*** Add File: " filename LF add_line+
delete_hunk: "*** Delete File: " filename LF
update_hunk: "*** Update File: " filename LF change_move? change?

filename: /(.+)/
add_line: "+" /(.*)/ LF -> line

change_move: "*** Move to: " filename LF
change: (change_context | change_line)+ eof_line?
change_context: ("@@" | "@@ " /(.+)/) LF
change_line: ("+" | "-" | " ") /(.*)/ LF
eof_line: "*** End of File" LF

%import common.LF
"""
TOOL = Tool(
    "apply_patch",
    INPUT_SCHEMA,
    strict=True,
    kind="custom",
    grammar=InputGrammar("lark", PATCH),
)
GOOD = """*** Begin Patch
*** Add File: a "b" <c>.py
+x = "q\\n" </div> </para
+
*** Update File: src/é.py
*** Move to: src/e.py
@@ def f
-<
+\t</param
 é😀 {"input": "x"}
*** End of File
*** Delete File: c
*** End Patch
"""
BAD = (
    GOOD.replace("+x", "x"),
    GOOD.replace("*** End Patch\n", ""),
    GOOD.replace(" src/é.py", " "),
    GOOD + "\n",
    "*** Begin Patch\n*** End Patch",
    "",
)


@cache
def _oracle() -> lark.Lark:
    # Lark's parser takes no expression that may match nothing.
    return lark.Lark(PATCH.replace("/(.*)/", "/(.+)/?"), parser="earley")


def is_patch(text: str) -> bool:
    """Whether Lark itself takes a text for a patch."""
    try:
        _oracle().parse(text)
    except lark.exceptions.UnexpectedInput:
        return False
    return True
