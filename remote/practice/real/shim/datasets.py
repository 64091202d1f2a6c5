"""In place of Hugging Face's `datasets`: SGLang's benchmark client imports it, and rarely calls it."""

from __future__ import annotations

from typing import NoReturn


def load_dataset(*_: object, **__: object) -> NoReturn:
    raise NotImplementedError("the practice node has no data sets from the hub")
