"""A practice node that runs SGLang itself, on the CPU, with tiny models that are made on the spot."""
