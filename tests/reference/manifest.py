"""The manifest of a folder of goldens: who made it from which seed and versions, and the SHA-256 of every file in it.

scripts/check_goldens.sh holds the folder to it: a file that differs, is missing or is not listed is a fault. Inputs that
were written by hand are listed too, so that what was made from them cannot part from them unseen.
"""
import hashlib
import json
import pathlib

NAME = "MANIFEST.json"
NOT_LISTED = (NAME, "README.md")


def write_manifest(folder, generator, seed, versions, **more):
    """`generator`: path in the repository; `seed`: None where nothing is random; `more`: further keys, before the hashes."""
    folder = pathlib.Path(folder)
    files = sorted(p for p in folder.rglob("*") if p.is_file() and p.name not in NOT_LISTED)
    sums = {str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}
    manifest = dict(generator=generator, seed=seed, **more, versions=versions, sha256=sums)
    (folder / NAME).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
