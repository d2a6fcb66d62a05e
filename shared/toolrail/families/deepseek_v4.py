r"""deepseek_v4: DeepSeek V4 Pro and Flash, DSML in `tool_calls` blocks.

```
Let me look.

<｜DSML｜tool_calls>
<｜DSML｜invoke name="get_weather">
<｜DSML｜parameter name="city" string="true">Paris</｜DSML｜parameter>
<｜DSML｜parameter name="days" string="false">3</｜DSML｜parameter>
</｜DSML｜invoke>
</｜DSML｜tool_calls>
```

A value that is announced as JSON and is none is kept as text. The opener of a block or of a bare
invoke ends reasoning that the model forgot to close.
"""

from __future__ import annotations

from typing import Final

from toolrail.families.dsml import SPECIAL, THINK, dsml
from toolrail.templated import templated

FAMILY: Final = templated(
    name="deepseek_v4",
    aliases=("deepseek-v4", "deepseekv4"),
    source="https://github.com/vllm-project/vllm/blob/v0.32.0/vllm/tokenizers/deepseek_v4_encoding.py",
    syntax=dsml(block="tool_calls", style="deepseek_xml"),
    reasoning=THINK,
    reasoning_names=("deepseek_v4",),
    special=SPECIAL,
)
