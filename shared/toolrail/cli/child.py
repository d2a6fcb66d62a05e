"""Become another program that dies with its parent.

`python -I -S child.py PARENT_PID COMMAND…`: asks the kernel to kill this process when its parent
dies, however that happens, and turns into COMMAND, keeping the process id. A program of its own,
run by path, because the request must be made between fork and exec, where Python code of a
process with threads is not safe.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import Final

PR_SET_PDEATHSIG: Final = 1


def main() -> None:
    """Turn into the command of `sys.argv`; exits when the parent is gone already."""
    parent, *command = sys.argv[1:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != int(parent):
        raise SystemExit(1)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        raise SystemExit(f"{command[0]}: {error.strerror}") from error


if __name__ == "__main__":
    main()
