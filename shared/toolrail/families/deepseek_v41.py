r"""deepseek_v41: DeepSeek V4.1, DSML with a space in its tags, in `calls` blocks.

```
Let me look.

<｜DSML｜ calls>
<｜DSML｜ invoke name="get_weather">
<｜DSML｜ parameter name="city" string="true">Paris</｜DSML｜ parameter>
</｜DSML｜ invoke>
<｜DSML｜ invoke name="done">{}</｜DSML｜ invoke>
</｜DSML｜ calls>
```

An invoke may have one JSON object for a body, as the second one here. A value that is announced as
JSON and is none makes its call malformed; later calls are kept. Closers with other spacing
(`</｜  parameter>`) are data to the parser; under a tag the model cannot write their beginning
`</｜` in an argument, because once it has, nothing but the limit would end the value.
"""

from __future__ import annotations

from typing import Final

from toolrail.families.dsml import SPECIAL, THINK, dsml
from toolrail.templated import templated

FAMILY: Final = templated(
    name="deepseek_v41",
    source="https://github.com/vllm-project/vllm/blob/v0.32.0/vllm/tokenizers/deepseek_v41_encoding.py",
    syntax=dsml(
        block="calls",
        style="deepseek_v4_1_xml",
        gap=" ",
        bad_json="malformed",
        json_body=True,
        reserved="</｜",
    ),
    reasoning=THINK,
    reasoning_names=("deepseek_v41",),
    owns_reasoning=True,
    special=SPECIAL,
    routes=frozenset({"2"}),
)
