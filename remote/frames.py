"""Finds the helper's replies in a byte stream that anybody else may have written to as well."""

from __future__ import annotations

NOISE_KEPT = 4096


class FrameReader:
    """Incremental: feed pieces as they come, get the JSON texts of complete frames.

    A frame is the byte 0x1e, the nonce, a blank, JSON without line ends, a line end. It may begin in
    the middle of a line and be cut anywhere. Everything else is noise, of which the last 4 kB are kept.
    """

    def __init__(self, nonce: str) -> None:
        self._mark = b"\x1e" + nonce.encode("ascii") + b" "
        self._pieces: list[bytes] | None = None  # of the frame that has begun
        self._tail = b""  # end of the noise, which may be the beginning of a mark
        self._noise = b""

    @property
    def noise(self) -> bytes:
        return (self._noise + self._tail)[-NOISE_KEPT:]

    def feed(self, piece: bytes) -> list[bytes]:
        """The frames that `piece` completes, in order."""
        frames = []
        while piece:
            if self._pieces is None:
                piece = self._skip_noise(piece)
                continue
            end = piece.find(b"\n")
            if end < 0:
                self._pieces.append(piece)
                break
            self._pieces.append(piece[:end])
            frames.append(b"".join(self._pieces))
            self._pieces = None
            piece = piece[end + 1 :]
        return frames

    def _skip_noise(self, piece: bytes) -> bytes:
        """What follows the next mark; empty when there is none yet."""
        text = self._tail + piece
        before, mark, after = text.partition(self._mark)
        if mark:
            self._keep(before)
            self._tail = b""
            self._pieces = []
            return after
        kept = min(len(text), len(self._mark) - 1)
        self._keep(text[: len(text) - kept])
        self._tail = text[len(text) - kept :]
        return b""

    def _keep(self, noise: bytes) -> None:
        self._noise = (self._noise + noise[-NOISE_KEPT:])[-NOISE_KEPT:]
