"""Archives of records taken apart and put together again, as whoever forges one would."""

import io
import lzma
import tarfile


def members(packed):
    """What stands in an archive, by name."""
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        return {member.name: archive.extractfile(member).read() for member in archive.getmembers()}


def of_members(contents, **changes):
    """An archive of them. `changes` are made to the header of each."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as archive:
        for name, content in dict(contents).items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            for key, value in changes.items():
                setattr(member, key, value)
            archive.addfile(member, io.BytesIO(content))
    return lzma.compress(plain.getvalue(), preset=0)
