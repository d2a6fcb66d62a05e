r"""deepseek_v3_2: DeepSeek V3.2, DSML in `function_calls` blocks.

```
Let me look.

<｜DSML｜function_calls>
<｜DSML｜invoke name="get_weather">
<｜DSML｜parameter name="city" string="true">Paris</｜DSML｜parameter>
</｜DSML｜invoke>
</｜DSML｜function_calls>
```

A value that is announced as JSON and is none is kept as text.
"""

from __future__ import annotations

from typing import Final

from toolrail.families.dsml import SPECIAL, THINK, dsml
from toolrail.templated import templated

FAMILY: Final = templated(
    name="deepseek_v3_2",
    source="https://huggingface.co/deepseek-ai/DeepSeek-V3.2/blob/main/encoding/encoding_dsv32.py",
    syntax=dsml(block="function_calls", style="deepseek_xml"),
    reasoning=THINK,
    reasoning_names=("deepseek_v3_2", "deepseek_v3_1", "deepseek_v3", "deepseek_r1"),
    special=SPECIAL,
    routes=frozenset({"1"}),
)
