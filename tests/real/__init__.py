"""The commands against SGLang itself: `make test-real`, not part of `make test`."""
