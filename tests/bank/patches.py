# SPDX-License-Identifier: MIT
"""The patched copy of the tree in which the bugs of the bank are built.

Every bugs/NAME.patch is applied to one copy of the sources, which is compiled
once; POSTERN_BUG=NAME chooses the bug when a program runs. A patch that does
not apply is left out and reported; the other patches are not affected.

SQL cannot choose at run time what it locks, so the part of a patch that
changes src/store/postgres/schema/*.sql is applied alone, to a schema of its
own: schemas/NAME.sql. schema.patch makes the store load that file.
"""

import glob
import os
import re
import shutil
import subprocess
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
BUGS = os.path.join(HERE, "bugs")
SCHEMA_PATCH = os.path.join(HERE, "schema.patch")
SQL_FOLDER = "src/store/postgres/schema"

# The parts of the tree that the build of the server and its tests reads.
PARTS = [
    "bench", "clients", "examples", "include", "man", "meson.build",
    "meson_options.txt", "packaging", "src", "tests",
]
# Two of three lines of context may differ: a patch survives edits nearby.
FUZZ = "-F2"


def patch_path(name):
    return os.path.join(BUGS, f"{name}.patch")


def patch_names():
    paths = glob.glob(os.path.join(BUGS, "*.patch"))
    return sorted(os.path.basename(path)[: -len(".patch")] for path in paths)


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def split(text):
    """The parts of a patch by the file that each of them changes."""
    parts = {}
    for part in re.split(r"^(?=--- a/)", text, flags=re.MULTILINE):
        match = re.match(r"--- a/(\S+)", part)
        if match:
            parts[match.group(1)] = part
    return parts


def apply(text, folder):
    """Applies a patch to the files below a folder completely, or not at all;
    then returns the output of `patch`."""
    command = ["patch", "-p1", "-f", "-s", FUZZ, "--no-backup-if-mismatch"]
    for more in (["--dry-run"], []):
        done = subprocess.run(
            command + more + ["-d", folder, "-r", "-"],
            input=text, capture_output=True, text=True, check=False,
        )
        if done.returncode != 0:
            return (done.stdout + done.stderr).strip()
    return None


def copy_files(paths, folder):
    for path in paths:
        os.makedirs(os.path.dirname(os.path.join(folder, path)), exist_ok=True)
        source = os.path.join(ROOT, path)
        if os.path.exists(source):
            shutil.copyfile(source, os.path.join(folder, path))


def sql_files():
    paths = glob.glob(os.path.join(ROOT, SQL_FOLDER, "[0-9]_*.sql"))
    return sorted(os.path.relpath(path, ROOT) for path in paths)


def apply_sql(parts):
    """The whole schema with a bug; or None, and the error."""
    with tempfile.TemporaryDirectory() as folder:
        copy_files(sql_files(), folder)
        error = apply("".join(parts), folder)
        if error:
            return None, error
        # As src/store/postgres/embed joins them.
        return "".join(
            read(os.path.join(folder, path)) + "\n" for path in sql_files()
        ), None


def apply_all(stage):
    """Applies every patch to the files in `stage`, each completely or not at
    all. Returns the schemas and the errors by name."""
    schemas, errors = {}, {}
    error = apply(read(SCHEMA_PATCH), stage)
    if error:
        errors["schema"] = error
    for name in patch_names():
        parts = split(read(patch_path(name)))
        sql = [part for path, part in parts.items() if path.endswith(".sql")]
        code = [part for path, part in parts.items() if not path.endswith(".sql")]
        schema, error = apply_sql(sql) if sql else (None, None)
        if not error and code:
            error = apply("".join(code), stage)
        if error:
            errors[name] = error
        elif schema:
            schemas[name] = schema
    return schemas, errors


def touched_files():
    texts = [read(SCHEMA_PATCH)] + [read(patch_path(name)) for name in patch_names()]
    return sorted({path for text in texts for path in split(text)})


def check():
    """The errors of the patches, by name."""
    with tempfile.TemporaryDirectory() as stage:
        copy_files(touched_files(), stage)
        return apply_all(stage)[1]


def write_changed(path, data):
    """Writes a file only if its content changes, so that it is compiled only
    then."""
    try:
        with open(path, "rb") as file:
            if file.read() == data:
                return
    except FileNotFoundError:
        os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(data)


def list_files():
    """Every file of the tree that the build reads, with its mode."""
    for part in PARTS:
        path = os.path.join(ROOT, part)
        if os.path.isfile(path):
            yield part
        for folder, _, names in os.walk(path):
            for name in names:
                if not name.endswith(".pyc"):
                    yield os.path.relpath(os.path.join(folder, name), ROOT)


def remove_others(folder, kept):
    for place, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(place, name)
            if os.path.relpath(path, folder) not in kept:
                os.remove(path)


def make(folder):
    """Updates folder/tree and folder/schemas; returns the errors of the
    patches by name."""
    tree = os.path.join(folder, "tree")
    kept = set(list_files())
    with tempfile.TemporaryDirectory() as stage:
        touched = touched_files()
        copy_files(touched, stage)
        schemas, errors = apply_all(stage)
        for path in kept:
            patched = os.path.join(stage, path)
            source = patched if os.path.exists(patched) else os.path.join(ROOT, path)
            with open(source, "rb") as file:
                write_changed(os.path.join(tree, path), file.read())
            shutil.copymode(os.path.join(ROOT, path), os.path.join(tree, path))
    remove_others(tree, kept)
    for name, text in schemas.items():
        write_changed(os.path.join(folder, "schemas", f"{name}.sql"), text.encode())
    remove_others(os.path.join(folder, "schemas"), {f"{n}.sql" for n in schemas})
    return errors


def build(folder, targets):
    """Compiles the targets in folder/tree into folder/build; returns the
    output if that fails."""
    tree = os.path.join(folder, "tree")
    output = os.path.join(folder, "build")
    commands = []
    if not os.path.exists(os.path.join(output, "build.ninja")):
        commands.append([
            "meson", "setup", output, tree, "-Dpoints=true", "-Dserver=enabled",
            # Compile time matters as much as run time here.
            "-Doptimization=1", "-Ddebug=false", "-Dwerror=false",
            f"-Dc_args=-include{os.path.join(HERE, 'bug.h')}",
        ])
    commands.append(["ninja", "-C", output, *targets])
    for command in commands:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, check=False,
        )
        if done.returncode != 0:
            return f"{command[0]}: {done.stdout[-4000:]}"
    return None
