"""Delta's jars, fetched within a time limit by the Ivy that pyspark brings along.

Spark's own `spark.jars.packages` would do it too, but it can't be stopped: without a network the
session would hang in retries, and when it fails there is no session at all.
"""

from __future__ import annotations

import subprocess
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from kmq_spark.cli.runtime_checks import find_java

#: Five seconds on a usual network; after this the archive becomes Parquet.
TIME_LIMIT = 40.0

# Only Delta's own jars: a second Jackson, Hadoop or slf4j on the class path would break Spark.
_MODULE = """\
<ivy-module version="2.0">
  <info organisation="io.kmq" module="demo"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
    <dependency org="io.delta" name="delta-spark_{spark}_2.13" rev="{delta}" conf="default"/>
    <exclude matcher="regexp" org="^(?!io\\.delta$|io\\.unitycatalog$).*"/>
  </dependencies>
</ivy-module>
"""


def wanted() -> bool:
    """Whether delta-spark is installed."""
    return find_spec("delta") is not None


def fetch(folder: Path, time_limit: float = TIME_LIMIT) -> list[Path]:
    """The jars, from `folder` when an earlier call has put them there; empty when out of reach."""
    complete = folder / "complete"
    if not complete.exists() and not _retrieve(folder, time_limit):
        return []
    complete.touch()
    return sorted(folder.glob("*.jar"))


def _retrieve(folder: Path, time_limit: float) -> bool:
    try:
        delta, spark = version("delta-spark"), version("pyspark")
    except PackageNotFoundError:
        return False
    java, ivy = find_java(), _ivy()
    if java is None or ivy is None:
        return False
    folder.mkdir(parents=True, exist_ok=True)
    module = folder / "ivy.xml"
    module.write_text(_MODULE.format(spark=".".join(spark.split(".")[:2]), delta=delta))
    command = [java, "-jar", str(ivy), "-ivy", str(module), "-cache", str(folder / "cache")]
    command += ["-types", "jar", "-retrieve", f"{folder}/[artifact]-[revision].[ext]"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=time_limit, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0 and any(folder.glob("delta-spark*.jar"))


def _ivy() -> Path | None:
    spec = find_spec("pyspark")
    folders = spec.submodule_search_locations if spec else None
    return next((jar for f in folders or () for jar in Path(f).glob("jars/ivy-*.jar")), None)
