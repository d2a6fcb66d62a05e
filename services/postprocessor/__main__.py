"""`python -m services.postprocessor [flags]`."""

from __future__ import annotations

from services.postprocessor.main import main
from toolrail.service.process import run
from toolrail.settings import PostprocessorSettings

if __name__ == "__main__":
    run("postprocessor", PostprocessorSettings, main)
