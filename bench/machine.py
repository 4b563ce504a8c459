# SPDX-License-Identifier: MIT
"""The conditions of a measurement: the machine, the disk, the versions."""

import datetime
import json
import os
import platform
import re
import subprocess
import time


def read(path):
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError:
        return ""


def processor():
    match = re.search(r"^model name\s*: (.*)$", read("/proc/cpuinfo"), re.M)
    return match.group(1).strip() if match else platform.machine()


def memory_gib():
    match = re.search(r"^MemTotal:\s*(\d+)", read("/proc/meminfo"), re.M)
    return round(int(match.group(1)) / 1024 / 1024) if match else 0


def file_system(folder):
    result = subprocess.run(
        ["stat", "-f", "-c", "%T", folder], stdout=subprocess.PIPE, text=True,
        check=False,
    )
    return result.stdout.strip()


def sync_ms(folder):
    """Returns about how long one durable write of a page takes."""
    path = os.path.join(folder, "sync")
    page = b"x" * 4096
    count = 100
    with open(path, "wb", buffering=0) as file:
        file.write(page * count)
        os.fsync(file.fileno())
        file.seek(0)
        started = time.perf_counter()
        for _ in range(count):
            file.write(page)
            os.fdatasync(file.fileno())
        seconds = time.perf_counter() - started
    os.remove(path)
    return seconds * 1000 / count


def describe(place):
    version = json.loads(place.output([place.postern, "version", "--json"]))
    return {
        "date": datetime.date.today().isoformat(),
        "postern": f"Postern {version['version']}",
        "SQLite": f"SQLite {version['libraries']['sqlite']}",
        "PostgreSQL": place.database.version(),
        "Redis": place.redis.version(),
        "processor": processor(),
        "cores": os.cpu_count(),
        "memory_gib": memory_gib(),
        "kernel": platform.release().split("-")[0],
        "file_system": file_system(place.folder),
        "sync_ms": sync_ms(place.folder),
        "load": os.getloadavg()[0],
        "rounds": place.rounds,
        "scale": place.scale,
    }
