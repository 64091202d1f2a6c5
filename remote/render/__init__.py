"""Everything that fixops prints: values in, text on a terminal out. Nothing else prints."""
