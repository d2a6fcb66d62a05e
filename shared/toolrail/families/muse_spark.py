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

from toolrail.families.family import PromptPolicy
from toolrail.families.muse_glimmer import EOM, MESSAGE, routing, variant
from toolrail.families.muse_glimmer import SPELLING as GLIMMER_SPELLING
from toolrail.families.muse_glimmer import SYNTAX as GLIMMER_SYNTAX
from toolrail.syntax import MessageSpelling

SPELLING: Final = replace(
    GLIMMER_SPELLING, remark=MessageSpelling(f" to=commentary{MESSAGE}", (EOM,))
)
SYNTAX: Final = replace(
    GLIMMER_SYNTAX, route=routing(text=("user", "commentary"), nowhere=("developer",))
)

FAMILY: Final = variant(
    name="muse_spark",
    aliases=("muse_spark_open",),
    source="published cases of the family (no public template)",
    spelling=SPELLING,
    prompt=PromptPolicy(text_apart=(("recipient", "commentary"), ("end_turn", False))),
    syntax=SYNTAX,
)
