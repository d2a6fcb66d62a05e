"""`python -m toolrail.cli.check_parsers TOOL REASONING VERSION`: can these parsers work?

Exit status 0: yes. 2: no, and one line on standard output, `field: why`, names those that can. An
empty name means none. Workers ask at their start; they know no parser themselves.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Literal, cast

from toolrail.errors import ConfigError
from toolrail.families import dialect


def main(arguments: Sequence[str]) -> int:
    """The exit status."""
    tool_parser, reasoning_parser, version = arguments
    try:
        dialect(
            tool_parser or None,
            reasoning_parser or None,
            parser_version=cast('Literal["auto", "1", "2"]', version),
        )
    except ConfigError as error:
        print(error)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
