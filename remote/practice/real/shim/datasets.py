"""Hugging Face's `datasets`: SGLang's own benchmark client imports it, and needs it only for data from the hub."""

from __future__ import annotations

from typing import NoReturn


def load_dataset(*_: object, **__: object) -> NoReturn:
    raise NotImplementedError("the practice node has no data sets from the hub")
