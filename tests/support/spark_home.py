"""A Spark whose processes start in a third of the time: JVMs, and the Pythons that these start.

Spark gives its Python processes `pyspark.zip`, which each of them compiles once more; in a home
without it they take the installed package. And a JVM reads some ten thousand classes from jars,
unless it has an archive of them (AppCDS), which is made once per machine, in the background.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from contextlib import suppress
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

#: A JVM of the tests does little of anything often enough to be worth its best code; what it says
#: of archives would stand among what a test reads.
_JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xlog:disable"
#: What a JVM does whose classes are kept: much of what tests do.
_WORK = """
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", False).getOrCreate()
rates = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
rates.writeStream.format("noop").trigger(once=True).start().awaitTermination()
assert spark.range(9).selectExpr("string(id) v").groupBy("v").count().orderBy("v").collect()
jvm = spark.sparkContext._gateway.proc
spark.stop()
jvm.stdin.close()
raise SystemExit(jvm.wait())  # a JVM crashes with half an archive
"""


def use_spark_home() -> None:
    """Have all that this process starts run Spark there; nothing where it is not installed."""
    found = find_spec("pyspark")
    os.environ["JDK_JAVA_OPTIONS"] = _JAVA_OPTIONS
    if found is None or found.origin is None:
        return
    home = _home_of(Path(found.origin).parent)
    if os.environ.setdefault("SPARK_HOME", str(home)) == str(home):  # else somebody has his own
        os.environ["JDK_JAVA_OPTIONS"] += f" -XX:SharedArchiveFile={_archive_in(home)}"


def _home_of(package: Path) -> Path:
    """A folder that has all of an installed package but its zip, made unless it is there."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "kmq-tests"
    jars = sorted(each.name for each in (package / "jars").glob("*.jar"))
    home = cache / f"spark-{sha256(str((package, jars)).encode()).hexdigest()[:16]}"
    if not home.exists():
        cache.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(dir=cache))
        for each in package.iterdir():
            if each.name != "python":
                (made / each.name).symlink_to(each)
        with suppress(OSError):  # another process was faster
            made.rename(home)
    return home


def _archive_in(home: Path) -> Path:
    return home / "classes.jsa"


def build_class_archive() -> subprocess.Popen[bytes] | None:
    """Begin to make the archive in the background, unless it is there or somebody is at it."""
    _, given, path = os.environ["JDK_JAVA_OPTIONS"].partition(" -XX:SharedArchiveFile=")
    if not given or Path(path).exists():
        return None
    script = (
        'exec 9> "$1.lock"; flock -n 9 || exit; [ -e "$1" ] && exit; '
        'nice -n 19 "$2" -c "$3" && mv "$1.new" "$1"'
    )
    return subprocess.Popen(
        ["sh", "-c", script, "build", path, sys.executable, _WORK],
        env={
            **os.environ,
            "JDK_JAVA_OPTIONS": f"{_JAVA_OPTIONS} -XX:ArchiveClassesAtExit={path}.new",
        },
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
