"""What a token costs on its way from the engine to the client, and how late it comes.

Real processes, a real NATS server, the scripted engine, HTTP on the loopback address. For 1, 16 and
64 streams, paced (a step every 20 ms, as a real engine makes them) and free running (as fast as it
goes), and for requests of one token alone; beside two baselines measured in the same run, see
`benchmarks/variants.py`. `docs/benchmarks.md` says what the columns mean and what they do not.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from benchmarks.processes import ROOT
from benchmarks.variants import VARIANTS, Running

STREAMS: Final = (1, 16, 64)
STEP_MS: Final = 20.0
LOAD_TIMEOUT_S: Final = 40.0
BUDGET_S: Final = 150.0
"""After this no further variant begins: the whole run ends within three minutes."""

TEXT: Final = (
    "A rail vehicle runs on a pair of rails that carry and guide it, so the driver cannot steer "
    "and need not; what looks like a constraint is what lets a train of a kilometre pass a bend "
    "in the dark at speed. "
) * 12


@dataclass(frozen=True)
class Load:
    """What the clients do: `requests` one after another on each connection, begun over `ramp_s`."""

    streams: int
    requests: int
    max_tokens: int
    ramp_s: float = 0.0


@dataclass(frozen=True)
class Result:
    """One row of a table.

    `cpu_us`: microseconds of CPU for each output token, by process.
    """

    variant: str
    streams: int
    tokens_per_s: float
    cpu_us: dict[str, float]
    messages_per_token: float
    ttft_p50_ms: float
    ttft_p99_ms: float
    gap_p99_ms: float

    @property
    def total_us(self) -> float:
        """All processes together."""
        return sum(self.cpu_us.values())


def paced(streams: int) -> Load:
    """A stream of seconds on every connection; they begin one after another, as clients do."""
    return Load(1, 3, 48) if streams == 1 else Load(streams, 1, 128, ramp_s=1.0)


def free(streams: int) -> Load:
    """All at once, as much as there is to do."""
    return Load(streams, {1: 12, 16: 3}.get(streams, 2), 256)


def alone(streams: int) -> Load:
    """Requests of one token: what a request costs before and beside its tokens."""
    return Load(streams, max(2, 64 // streams), 1)


TABLES: Final = {
    "paced, a step every 20 ms": (STEP_MS, [paced]),
    "free running": (0.0, [free, alone]),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--streams", type=int, nargs="+", default=STREAMS)
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--json", type=Path, help="also write the results there")
    a = parser.parse_args()
    started = time.monotonic()
    results: dict[str, list[Result]] = {}
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "script.jsonl")
        script.write_text(json.dumps({"match": "", "text": TEXT}) + "\n", encoding="utf-8")
        for pace, (step_ms, loads) in TABLES.items():
            for variant in a.variants:
                if time.monotonic() - started > BUDGET_S:
                    print(f"{pace}, {variant}: left out, the machine is too slow for the rest")
                    continue
                with VARIANTS[variant](step_ms, str(script), max(a.streams)) as running:
                    # Warm-up: the tokenizer, the template, verdicts, every code path.
                    run(running, Load(max(a.streams), 1, 16))
                    for load in loads:
                        title = pace if load is not alone else "one token a request, free running"
                        results.setdefault(title, []).extend(
                            measure(variant, running, load(streams)) for streams in a.streams
                        )
    report(results)
    seconds = time.monotonic() - started
    print(f"\n{seconds:.0f} s in all; {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    if a.json:
        rows = {title: [asdict(row) for row in table] for title, table in results.items()}
        a.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")


def measure(variant: str, running: Running, load: Load) -> Result:
    """One row."""
    cpu, messages = running.cpu_s(), running.bus_messages()
    seen = run(running, load)
    used = {name: now - cpu[name] for name, now in running.cpu_s().items()}
    tokens = seen["tokens"]
    return Result(
        variant=variant,
        streams=load.streams,
        tokens_per_s=tokens / seen["wall_s"],
        cpu_us={name: 1e6 * seconds / tokens for name, seconds in used.items()},
        messages_per_token=(running.bus_messages() - messages) / tokens,
        ttft_p50_ms=seen["ttft_p50_ms"],
        ttft_p99_ms=seen["ttft_p99_ms"],
        gap_p99_ms=seen["gap_p99_ms"],
    )


def run(running: Running, load: Load) -> dict[str, float]:
    """What a load generator in a process of its own has seen."""
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in vars(load).items()]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.load", running.base_url, *flags],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        timeout=LOAD_TIMEOUT_S,
        check=True,
    )
    return json.loads(done.stdout)


def report(results: dict[str, list[Result]]) -> None:
    """Print the tables: costs, then what each baseline costs or saves against the product."""
    for title, rows in results.items():
        print(f"\n{title}")
        print(
            f"{'':18}{'streams':>8}{'tok/s':>9}{'CPU us/tok':>12}{'msgs/tok':>10}"
            f"{'TTFT p50':>10}{'p99 ms':>9}{'gap p99':>9}  CPU us/tok by process"
        )
        for row in rows:
            parts = "  ".join(f"{name} {us:.0f}" for name, us in row.cpu_us.items())
            print(
                f"{row.variant:18}{row.streams:>8}{row.tokens_per_s:>9.0f}{row.total_us:>12.1f}"
                f"{row.messages_per_token:>10.3f}{row.ttft_p50_ms:>10.1f}{row.ttft_p99_ms:>9.1f}"
                f"{row.gap_p99_ms:>9.1f}  {parts}"
            )
        product = {row.streams: row for row in rows if row.variant == "frames"}
        for variant in dict.fromkeys(row.variant for row in rows if row.variant != "frames"):
            against = [
                f"{row.streams}: CPU x{row.total_us / product[row.streams].total_us:.2f},"
                f" TTFT {row.ttft_p50_ms - product[row.streams].ttft_p50_ms:+.1f} ms"
                for row in rows
                if row.variant == variant and row.streams in product
            ]
            print(f"  {variant} against frames, by streams: {';  '.join(against)}")


if __name__ == "__main__":
    main()
