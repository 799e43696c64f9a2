"""Which encoding a text file is in, found from its bytes."""

import re

from posteriax.cli.user_data.messages import DataError, brief, counted

UTF16 = (b"\xff\xfe", b"\xfe\xff")
CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
UNDEFINED = re.compile(rb"[\x81\x8d\x8f\x90\x9d]")  # in Windows-1252


def find_encoding(name: str, content: bytes) -> tuple[str, str, str]:
    """The encoding, what to do with bytes that do not fit it (as Python calls it), and a line about it, often empty.

    >>> find_encoding("trees.csv", "höhe".encode())
    ('utf-8-sig', 'strict', '')
    >>> find_encoding("trees.csv", "höhe".encode("latin-1"))[0]
    'cp1252'
    """
    if content.startswith(UTF16):
        return "utf-16", "replace", f"{name} is UTF-16 text"
    if CONTROL.search(content):
        raise DataError(f"{name} is a binary file, not a table: CSV, Parquet and Excel are read")
    try:
        content.decode("utf-8")
    except UnicodeDecodeError as error:
        return _other_than_utf8(name, content, error.start)
    return "utf-8-sig", "strict", ""


def _other_than_utf8(name: str, content: bytes, start: int) -> tuple[str, str, str]:
    line = content[:start].count(b"\n") + 1
    text = content.decode("utf-8", "replace")
    damaged = text.count("\ufffd")
    if sum(not char.isascii() for char in text) > 2 * damaged:
        note = f"{name} is UTF-8 text with {counted(damaged, 'damaged character')}, the first in line {line}"
        return "utf-8-sig", "replace", note
    encoding, called = ("latin-1", "Latin-1") if UNDEFINED.search(content) else ("cp1252", "Windows-1252")
    word = re.search(r"\w*[^\x00-\x7f]\w*", content[max(start - 40, 0) : start + 40].decode(encoding))
    example = brief(word[0]) if word else "it"
    note = f"{name} is not UTF-8 text: read as {called} ({example} in line {line}); if that is wrong, save it as UTF-8"
    return encoding, "strict", note
