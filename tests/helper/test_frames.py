"""Frames in a stream that holds anything else."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from remote.frames import FrameReader


@given(
    pieces=st.lists(st.one_of(st.binary(max_size=30), st.integers(0, 5)), max_size=12),
    cuts=st.lists(st.integers(0, 400), max_size=12),
)
def test_frames_are_found_in_any_noise_however_the_stream_is_cut(
    pieces: list[bytes | int], cuts: list[int]
) -> None:
    mark = b"\x1e0123456789abcdef "
    texts = [b'{"id": %d}' % piece for piece in pieces if isinstance(piece, int)]
    stream = b"".join(
        mark + b'{"id": %d}\n' % p if isinstance(p, int) else p.replace(mark, b"") for p in pieces
    )
    edges = sorted({min(cut, len(stream)) for cut in cuts} | {0, len(stream)})
    reader = FrameReader("0123456789abcdef")
    found = [frame for a, b in itertools.pairwise(edges) for frame in reader.feed(stream[a:b])]
    assert found == texts
    assert len(reader.noise) <= 4096


def test_the_end_of_the_noise_is_kept() -> None:
    reader = FrameReader("0123456789abcdef")
    reader.feed(b"x" * 100_000 + b"the end \x1e0123")
    assert reader.noise.endswith(b"the end \x1e0123")
    assert len(reader.noise) == 4096
