"""The process that tries tags on the grammar engine: one after the other, each under a budget.

Started by `compile_check` as `python -m services.preprocessor.compile_worker`. A compile can
neither be timed out nor cancelled, may take gigabytes and may crash; here it costs this process
alone. The CPU budget is a timer whose signal ends the process, the memory budget a limit of the
address space, and the parent, which watches the clock, kills what hangs.

Frames on stdin: 4 bytes length, then the tag's JSON text. Answers on stdout: one JSON line each, an
`Answer`; the first line says that the engine is loaded.
"""

from __future__ import annotations

import os
import random
import resource
import signal
import sys
import time
from collections import deque
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from toolrail.grammar import CompiledGrammar, GrammarError, Matcher, Vocabulary

_LENGTH_BYTES: Final = 4
_NICENESS: Final = 5
"""A request that is already admitted goes before one that is being checked."""
_WALK_STEPS: Final = 32
_MASK_CPU_S: Final = 0.005
"""What a mask over the sample vocabulary may cost on the average: a tenth of a real one's cost."""
_LONG_WALK_STEPS: Final = 320
_LONG_WALKS: Final = 6
_LATE_STEPS: Final = 64
_LATE_CPU_S: Final = 0.00015
"""What a token may cost late in a long walk, its mask aside: fifty times what it should."""
_GRAMMAR: Final = '"type":"grammar"'
_RETIRE_SHARE: Final = 4
"""A process that has ever held more than one part in this many of its memory budget is replaced:
the engine's memory is not returned to the system, and the next check must find its whole budget."""


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    """What became of one tag.

    Attributes:
        error: why the engine refuses the tag; None: it compiles.
        out_of_memory: the memory budget was too small for it.
        too_slow: it compiles, and its token masks cost too much.
        cpu_s: CPU seconds that the compile took.
        retire: this process ends now; use another.
    """

    error: str | None = None
    out_of_memory: bool = False
    too_slow: bool = False
    cpu_s: float = 0.0
    retire: bool = False


def frame(tag_json: str) -> bytes:
    """The tag as this process reads it."""
    body = tag_json.encode("utf-8", "surrogatepass")
    return len(body).to_bytes(_LENGTH_BYTES, "big") + body


def sample_tokens() -> list[bytes]:
    """A vocabulary on which compiling costs about as much as on a real one, or a few times less.

    All bytes and all pairs of printable ASCII characters. Without a vocabulary the costly half of a
    compile, the token masks, does not happen: a pattern that takes an engine a minute passes in
    milliseconds. Measured against a 49,152-token vocabulary over two dozen ordinary and hostile
    schemas: 0.3 to 10 times cheaper, and in the same order.
    """
    printable = range(0x20, 0x7F)
    single = [bytes((byte,)) for byte in range(256)]
    return single + [bytes((first, second)) for first in printable for second in printable]


def check(vocabulary: Vocabulary, tag_json: str) -> Answer:
    """Compiles one tag and walks a little way through it."""
    began = time.process_time()
    error: str | None = None
    out_of_memory = too_slow = False
    try:
        compiled = vocabulary.compile(tag_json)
        too_slow = mask_cpu_s(compiled) > _MASK_CPU_S * _WALK_STEPS
        if not too_slow and _GRAMMAR in tag_json:
            too_slow = late_cpu_s(compiled) > _LATE_CPU_S
    except GrammarError as refused:
        error = str(refused)
        out_of_memory = "bad_alloc" in error
    except MemoryError:
        error, out_of_memory = "out of memory", True
    if too_slow:
        error = "its tokens take too much CPU time"
    spent_s = round(time.process_time() - began, 4)
    return Answer(error=error, out_of_memory=out_of_memory, too_slow=too_slow, cpu_s=spent_s)


def mask_cpu_s(compiled: CompiledGrammar) -> float:
    """CPU seconds of the token masks along one random text of `_WALK_STEPS` tokens at most.

    A grammar may compile in a millisecond and cost the engine half a second at every token, for all
    requests of its batch: the engine's cost moves from the compile to the masks.
    """
    matcher = Matcher(compiled)
    chance = random.Random(_WALK_STEPS)  # noqa: S311 (the same tag, the same walk)
    spent_s = 0.0
    for _ in range(_WALK_STEPS):
        began = time.process_time()
        matcher.allowed()
        spent_s += time.process_time() - began
        tokens = matcher.allowed_ids()
        if not tokens or not matcher.accept_token(chance.choice(tokens)):
            break
    return spent_s


def late_cpu_s(compiled: CompiledGrammar) -> float:
    """CPU seconds that a token costs late in a long text, its mask aside: the most of some texts.

    The engine keeps all readings of a text; in a grammar where their number grows with the text, a
    token costs the more the later it comes. Half of the texts stay in loops as long as they can.
    """
    chance = random.Random(_LONG_WALK_STEPS)  # noqa: S311 (likewise)
    most = 0.0
    for walk in range(_LONG_WALKS):
        most = max(most, _late_cpu_s(Matcher(compiled), chance, repeats=walk % 2 == 0))
        if most > _LATE_CPU_S:
            break
    return most


def _late_cpu_s(matcher: Matcher, chance: random.Random, *, repeats: bool) -> float:
    costs: deque[float] = deque(maxlen=_LATE_STEPS)
    last = -1
    for _ in range(_LONG_WALK_STEPS):
        allowed = int.from_bytes(matcher.allowed(), "little")
        if not repeats or last < 0 or not allowed >> last & 1:
            last = _some_bit(allowed, chance)
        began = time.process_time()
        if last < 0 or not matcher.accept_token(last):
            break
        costs.append(time.process_time() - began)
        if sum(costs) > _LATE_CPU_S * _LATE_STEPS:
            break
    return sum(costs) / _LATE_STEPS


def _some_bit(bits: int, chance: random.Random) -> int:
    """A set bit at random, -1 where there is none; near one that is drawn."""
    size = bits.bit_length()
    if not size:
        return -1
    at = chance.randrange(size)
    above = bits >> at
    return at + (above & -above).bit_length() - 1


def serve(requests: BinaryIO, answers: BinaryIO, cpu_s: float, memory_bytes: int) -> None:
    """Answers frames until the parent closes the pipe or this process must retire."""
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    vocabulary = Vocabulary(sample_tokens())
    answer = Answer()
    while True:
        answers.write(msgspec.json.encode(answer) + b"\n")
        answers.flush()
        if answer.retire:
            return
        head = requests.read(_LENGTH_BYTES)
        body = requests.read(int.from_bytes(head, "big"))
        if len(head) < _LENGTH_BYTES:
            return
        signal.setitimer(signal.ITIMER_PROF, cpu_s)
        answer = check(vocabulary, body.decode("utf-8", "surrogatepass"))
        signal.setitimer(signal.ITIMER_PROF, 0)
        if answer.out_of_memory or held_bytes() > memory_bytes // _RETIRE_SHARE:
            answer = msgspec.structs.replace(answer, retire=True)


def held_bytes() -> int:
    """Resident memory of this process.

    Not `ru_maxrss`: it survives an exec, so that it begins with what the parent once held.
    """
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize()


def main() -> None:
    """Runs until stdin ends. Arguments: CPU seconds and memory bytes of one check."""
    os.nice(_NICENESS)
    # The engine's binding imports numpy where it can and does not need it: two thirds of the start.
    sys.modules["numpy"] = None  # type: ignore[assignment]  # the way to block an import
    # Ctrl-C reaches the whole process group; the parent decides when its children end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    serve(sys.stdin.buffer, sys.stdout.buffer, float(sys.argv[1]), int(sys.argv[2]))


if __name__ == "__main__":
    main()
