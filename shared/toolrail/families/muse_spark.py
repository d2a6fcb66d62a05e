r"""muse_spark (`muse_spark_open`): the wire of `muse_glimmer` with two more recipients.

```
 to=commentary<|message|>Looking it up.<|eom|><|start|>assistant to=get_weather<|message|>...
```

`commentary` is visible text between calls; `developer` is shown to nobody. No chat template of this
model is public: the recipients were read in published cases.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from toolrail.families.muse_glimmer import EOM, MESSAGE, SPELLING, routing, variant
from toolrail.families.muse_glimmer import SYNTAX as GLIMMER
from toolrail.syntax import MessageSpelling

SYNTAX: Final = replace(GLIMMER, route=routing(text=("user", "commentary"), nowhere=("developer",)))

FAMILY: Final = variant(
    name="muse_spark",
    aliases=("muse_spark_open",),
    source="published cases of the family (no public template)",
    spelling=replace(SPELLING, remark=MessageSpelling(f" to=commentary{MESSAGE}", (EOM,))),
    syntax=SYNTAX,
)
