"""The stand-alone reasoning parsers."""
