"""Files of an entry compressed by xz, and given back within bounds: an entry is untrusted input."""

from __future__ import annotations

import io
import lzma
from pathlib import Path
from typing import Final

_PRESET: Final = 9 | lzma.PRESET_EXTREME  # looks back 64 MB
_UNPACKER_BYTES: Final = 200_000_000  # of memory: xz says itself how far it looks back
_PIECE_BYTES: Final = 1_000_000


def compressed(content: bytes | memoryview) -> bytes:
    """The content as a file that `unpacked` reads; the same content gives the same bytes."""
    return lzma.compress(content, preset=_PRESET)


def unpacked(file: Path, most_bytes: int) -> bytes:
    """What was compressed, all of it at once.

    Args:
        most_bytes: That it may have.

    Raises:
        OSError, EOFError, LZMAError, ValueError: It was cut, is larger, or something else stands behind it.
    """
    unpacker = lzma.LZMADecompressor(format=lzma.FORMAT_XZ, memlimit=_UNPACKER_BYTES)
    found = io.BytesIO()
    with file.open("rb") as stream:
        while not unpacker.eof:
            piece = stream.read(_PIECE_BYTES) if unpacker.needs_input else b""
            if unpacker.needs_input and not piece:
                raise EOFError("it was cut")
            found.write(unpacker.decompress(piece, _PIECE_BYTES))
            if found.tell() > most_bytes:
                raise ValueError(f"it is too large: more than {most_bytes} bytes")
        if unpacker.unused_data or stream.read(1):
            raise ValueError("something was added behind it")
    return found.getvalue()
