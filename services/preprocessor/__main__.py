"""`python -m services.preprocessor`."""

from __future__ import annotations

import gc

from services.preprocessor.main import main
from toolrail.service.process import run
from toolrail.settings import PreprocessorSettings

if __name__ == "__main__":
    # Parsing makes containers by the hundred thousand: at the default thresholds collecting them
    # takes longer than parsing.
    gc.set_threshold(50_000, 20, 50)
    run("preprocessor", PreprocessorSettings, main)
