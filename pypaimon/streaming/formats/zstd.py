"""Zstandard, no further than it may go."""

from __future__ import annotations


def decompress_zstd(frame: bytes, most: int) -> bytes:
    """One frame, decompressed.

    Raises:
        ValueError: It is damaged, or holds more than `most` bytes.
    """
    import zstandard

    try:
        if zstandard.frame_content_size(frame) > most:
            raise ValueError(f"a block holds more than {most} bytes")
        return zstandard.ZstdDecompressor().decompress(frame, max_output_size=most, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise ValueError(f"a block cannot be decompressed: {error}") from error
