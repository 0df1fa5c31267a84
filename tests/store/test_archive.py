"""Files in one archive: the same bytes come back, and an archive that is not what was written is refused."""

import hashlib
import json
import lzma
import tarfile

import pytest
from small_archives import members, of_members

from adaptive_bench.store.archive import archived, files_in
from adaptive_bench.store.digest import sealed

KEY = "0123456789abcdef"


def files():
    """A sweep of two points as a run writes it, and files that are damaged."""
    found = {f"{KEY}/train.jsonl": b'{"step": 1, "loss": 2.5}\n{"step": 2, "loss": 2.25}\n'}
    for dial in ("0", "0.1"):
        documents = "".join(json.dumps({"doc": doc, "output": f"{doc} {dial}"}) + "\n" for doc in range(5)).encode()
        digest = hashlib.sha256(documents).hexdigest()
        point = sealed(json.dumps({"samples_sha256": digest, "dial": float(dial)}, indent=2)).encode()
        found |= {f"{KEY}/eval/task-{KEY}/{dial}.samples.jsonl": documents, f"{KEY}/eval/task-{KEY}/{dial}.json": point}
    other = b'{"samples_sha256": "' + b"0" * 64 + b'"}'
    found |= {f"{KEY}/eval/task-{KEY}/0.2.json": other, f"{KEY}/eval/task-{KEY}/0.2.samples.jsonl": b"\xff\r\n"}
    found |= {
        f"{KEY}/config.json": sealed('{\n  "a": "\\u00e4\\u2028ä"\n}').encode(),
        f"{KEY}/env.json": b"",
        "odd": b"{",
    }
    return found


@pytest.fixture
def file(tmp_path):
    place = tmp_path / "records.tar.xz"
    place.write_bytes(archived(files().items()))
    return place


def test_files_come_back_byte_for_byte(file):
    found = list(files_in(file, str))
    assert dict(found) == files() and len(found) == len(files())
    assert file.read_bytes() == archived(reversed(files().items()))


def test_what_follows_from_other_files_is_not_stored(file):
    stored = b"".join(members(file.read_bytes()).values())
    for content in files().values():
        if content.startswith(b'{\n  "samples_sha256"'):
            assert json.loads(content)["samples_sha256"].encode() not in stored
            assert json.loads(content)["content_sha256"].encode() not in stored


def test_a_name_that_is_refused_ends_it_before_anything_is_read(file):
    seen = []

    def check(name):
        seen.append(name)
        raise ValueError(f"{name} is not wanted")

    with pytest.raises(ValueError, match="is not wanted"):
        next(files_in(file, check))
    assert len(seen) == 1


def first(contents, name):
    return next(one for one in contents if one.endswith(name))


def damage(contents):
    names = contents["names"].split(b"\n")
    yield "names out of order", {"names": b"\n".join(reversed(names))}, "not in order"
    yield "a name twice", {"names": b"\n".join([names[0], *names[:-1]])}, "is in it twice"
    yield "a name more", {"names": b"\n".join([*names, b"z"])}, "longer|shorter"
    more = {"names": b"\n".join([*names, b"z"]), "left_out": contents["left_out"] + b"\0"}
    yield "a name more of which something is left out", more, "z is not in it"
    fewer = {"names": b"\n".join(names[:-1]), "left_out": contents["left_out"][:-1]}
    yield "a name fewer", fewer, "no name"
    yield "no names", {"names": b""}, "shorter|longer|no name"
    yield "something else left out", {"left_out": b"\4" + contents["left_out"][1:]}, "no number 4"
    yield "documents of a file that has none", {"left_out": b"\2" * len(names)}, "digest of its documents"
    yield "a member of nothing", {"more": b""}, "no stream"
    yield "a path", {"../escaped": b""}, "no stream"
    yield "a file of a record", {f"{KEY}/config.json": b"{}"}, "archives of earlier versions"
    yield "a part of nothing", {"7/text": b"1\n"}, "numbered from 0"
    yield "a part twice", {"00/text": b"1\n"}, "no stream"
    yield "no digest", {"digest": b""}, "damaged"
    output = next(name for name, content in contents.items() if b'"3 0.1"' in content)
    yield "another value", {output: contents[output].replace(b'"3 0.1"', b'"3 0.2"')}, "damaged"


def test_an_archive_that_is_not_what_was_written_is_refused(file):
    contents = members(file.read_bytes())
    for name, changes, why in damage(contents):
        file.write_bytes(of_members(contents | changes))
        with pytest.raises(ValueError, match=why):
            list(files_in(file, str))
            pytest.fail(name)


@pytest.mark.parametrize(
    "header",
    [
        {"type": tarfile.SYMTYPE, "linkname": "/etc/passwd"},
        {"type": tarfile.LNKTYPE, "linkname": "../../secret"},
        {"type": tarfile.CHRTYPE},
        {"type": tarfile.DIRTYPE},
        {"type": tarfile.GNUTYPE_SPARSE},
    ],
)
def test_members_are_plain_files(header, file):
    file.write_bytes(of_members({"names": b""}, **header))
    with pytest.raises((ValueError, tarfile.TarError, EOFError)):
        list(files_in(file, str))


def test_a_member_stands_there_once(file, tmp_path):
    contents = members(file.read_bytes())
    plain = lzma.decompress(of_members(contents))
    block = 2 * tarfile.BLOCKSIZE  # a header and as little as `left_out` is
    place = plain.index(b"left_out\0")
    file.write_bytes(lzma.compress(plain[:place] + plain[place : place + block] + plain[place:]))
    with pytest.raises(ValueError, match="left_out is in it twice"):
        list(files_in(file, str))


def test_extended_headers_are_not_followed(file):
    """`tarfile` would follow them to the end of memory or of the stack, or read their numbers in quadratic time."""
    for kind in (b"L", b"x", b"g"):
        header = tarfile.TarInfo("names")
        header.size, header.type = 512, kind
        file.write_bytes(lzma.compress((header.tobuf() + bytes(512)) * 600 + bytes(1024)))
        with pytest.raises(ValueError, match="member 1 is no stream"):
            list(files_in(file, str))


def test_nothing_stands_behind_it(file):
    whole = file.read_bytes()
    for content in (whole + b"more", whole + lzma.compress(b"more"), whole + bytes(4)):
        file.write_bytes(content)
        with pytest.raises(ValueError, match="added behind it"):
            list(files_in(file, str))
    file.write_bytes(whole[:-1])
    with pytest.raises(EOFError, match="cut"):
        list(files_in(file, str))


def test_it_unpacks_to_so_much_at_most(file, monkeypatch):
    monkeypatch.setattr("adaptive_bench.store.archive.LARGEST_STREAMS_BYTES", 2_000_000)
    file.write_bytes(lzma.compress(bytes(20_000_000)))
    with pytest.raises(ValueError, match="too large"):
        list(files_in(file, str))


def test_what_could_not_be_read_is_not_written(monkeypatch):
    with pytest.raises(ValueError, match="names are not"):
        archived([("a", b"1"), ("", b"2")])
    monkeypatch.setattr("adaptive_bench.store.archive.LARGEST_FILE_BYTES", 10)
    with pytest.raises(ValueError, match="too large"):
        archived([("a", b"1" * 11)])


def test_a_point_that_has_the_mark_of_a_digest_left_out_comes_back(file):
    documents = b'{"doc": 0}\n'
    digest = hashlib.sha256(documents).hexdigest()
    odd = json.dumps({"samples_sha256": digest, "more": {"samples_sha256": ""}}).encode()
    some = {"0.json": odd, "0.samples.jsonl": documents, "0.samples.jsonl.samples.jsonl": documents}
    file.write_bytes(archived(some.items()))
    assert dict(files_in(file, str)) == some


def test_large_files_are_parted(file, monkeypatch):
    monkeypatch.setattr("adaptive_bench.store.archive._PART_BYTES", 100)
    some = {f"{number}.samples.jsonl": b"1\n" * 40 for number in range(4)}
    file.write_bytes(archived(some.items()))
    assert dict(files_in(file, str)) == some and {"0/lines", "3/lines"} <= members(file.read_bytes()).keys()


def test_it_ends_with_its_last_member(file):
    with tarfile.open(file) as archive:
        last = archive.getmembers()[-1]
    plain = lzma.decompress(file.read_bytes())
    end = last.offset_data + -(-last.size // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE
    for content in (plain[: last.offset], plain[:end], plain[:end] + b"more", plain + b"more"):
        file.write_bytes(lzma.compress(content))
        with pytest.raises((ValueError, tarfile.TarError), match=r"does not end where its last member does|truncated"):
            list(files_in(file, str))


def test_a_name_stands_for_one_file():
    for content in (b"1", b"2", b""):
        with pytest.raises(ValueError, match="Name each file once"):
            archived([("a", content), ("a", content)])
