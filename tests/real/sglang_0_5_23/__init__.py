"""A version that captures the embedding by itself, and speaks differently."""
