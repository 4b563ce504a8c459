# SPDX-License-Identifier: MIT
"""The files of the source tree, as the rules read them."""

import os
import re

C_ENDINGS = (".c", ".h")
# Not read: build output, git's files, the files of `make run`, a socket among
# them, and the fuzz corpus, which is invalid on purpose.
SKIPPED = re.compile(
    r"^(\.git|build|build-.*|__pycache__|postern-demo\.db.*|corpus)$"
)

TOKEN = re.compile(
    r"""(?P<comment>/\*.*?\*/|//[^\n]*)
      |(?P<text>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')""",
    re.DOTALL | re.VERBOSE,
)


class File:
    """One file; `path` is relative to the root, with forward slashes."""

    def __init__(self, root, path):
        self.path = path
        with open(os.path.join(root, path), "rb") as file:
            self.bytes = file.read()
        self.text = self.bytes.decode("utf-8", errors="replace")
        self.is_c = path.endswith(C_ENDINGS)
        self._code = None

    @property
    def code(self):
        """The text of a C file without comments and string contents, with the
        same line numbers."""
        if self._code is None:
            self._code = TOKEN.sub(blank, self.text)
        return self._code

    @property
    def room(self):
        """The room under src/ that the file is in, or None."""
        parts = self.path.split("/")
        return parts[1] if parts[0] == "src" and len(parts) > 2 else None

    def find(self, pattern, text=None):
        """Yields (place, match) for each match in the code of the file."""
        text = self.code if text is None else text
        for match in re.finditer(pattern, text, re.MULTILINE):
            line = text.count("\n", 0, match.start()) + 1
            yield f"{self.path}:{line}", match


def blank(match):
    if match.group("text"):
        # Includes are read from this text, so their names are kept.
        before = match.string[: match.start()].rpartition("\n")[2]
        if before.lstrip().startswith("#"):
            return match.group()
        return match.group()[0] + match.group()[-1]
    return " " + re.sub(r"[^\n]", "", match.group())


def read(root):
    """Every file below the root, sorted by path."""
    files = []
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if not SKIPPED.match(name)]
        for name in names:
            full = os.path.join(folder, name)
            if not SKIPPED.match(name) and not os.path.islink(full):
                files.append(File(root, os.path.relpath(full, root)))
    return sorted(files, key=lambda file: file.path)
