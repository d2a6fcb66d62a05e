r"""DSML, the markup of DeepSeek V3.2 and later: one record, three spellings.

```
<｜DSML｜tool_calls>
<｜DSML｜invoke name="get_weather">
<｜DSML｜parameter name="city" string="true">Paris</｜DSML｜parameter>
<｜DSML｜parameter name="days" string="false">3</｜DSML｜parameter>
</｜DSML｜invoke>
</｜DSML｜tool_calls>
```

`｜DSML｜` is one token, the rest of each tag plain text. The attribute `string` says whether a
value is raw text or JSON, whatever the schema says. A block follows text after a blank line, which
is framing even where there is no text; exactly one blank line is, more of it is content.

Raw values may quote markup: a closer counts only where structure follows it, and not inside an
invoke that the value quotes whole.
"""

from __future__ import annotations

from typing import Final, Literal

from toolrail.syntax import (
    Args,
    Lit,
    Name,
    ReasoningMarkers,
    Section,
    Syntax,
    TypeAttribute,
    XmlStyle,
)

TOKEN: Final = "｜DSML｜"
THINK: Final = ReasoningMarkers("<think>", "</think>")
SPECIAL: Final = ("<think>", "</think>")


def dsml(  # noqa: PLR0913 - the fields of a record
    *,
    block: str,
    style: str,
    gap: str = "",
    bad_json: Literal["text", "malformed"] = "text",
    json_body: bool = False,
    reserved: str = "",
) -> Syntax:
    """The syntax with blocks named `block`.

    `gap`: what stands between the token and a tag's name. The rest: as in `toolrail.syntax`.
    """
    begin, end = f"<{TOKEN}{gap}", f"</{TOKEN}{gap}"
    invoke, invoke_end = f'{begin}invoke name="', f"{end}invoke>"
    parameter = f"{begin}parameter name="
    block_end = f"{end}{block}>"
    arguments = XmlStyle(
        style=style,
        open=parameter,
        key_end=">",
        close=f"{end}parameter>",
        after="\n",
        empty="\n",
        quotes='"',
        attribute=TypeAttribute(' string="', "true", "false", '"', bad_json=bad_json),
        json_body=json_body,
        follow=(parameter, invoke_end),
        quoted=(invoke, invoke_end),
        missing_close=(invoke_end,),
        missing_follow=(invoke, block_end),
        missing_ends=False,
        counted="</｜",
        reserved=reserved,
    )
    return Syntax(
        call=(Lit(invoke), Name(), Lit('">\n'), Args(arguments), Lit(invoke_end)),
        section=Section(f"{begin}{block}>\n", f"\n{block_end}"),
        separator="\n",
        trail="",
        lead="\n\n",
        always_led=True,
        closer_required=True,
        strays=(f"{end}parameter>",),
        reserved=(parameter,),
        bans=(f"<{TOKEN}",),
    )
