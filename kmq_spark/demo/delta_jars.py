"""Delta's jars, fetched within a time limit by the Ivy that pyspark brings along.

Spark's own `spark.jars.packages` would do that too, but has no time limit: without a network the
session would hang in retries, and when the download fails there is no session at all.
"""

from __future__ import annotations

import subprocess
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from kmq_spark.cli.runtime_checks import find_java

#: Five seconds on a usual network; after this the archive becomes Parquet.
_TIME_LIMIT = 40.0

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


def fetch(folder: Path) -> list[Path]:
    """The jars below `folder`, fetched unless an earlier call did; empty when out of reach.

    Also empty where delta-spark isn't installed.
    """
    try:
        delta, spark = version("delta-spark"), version("pyspark")
    except PackageNotFoundError:
        return []
    target = folder / f"delta-{delta}-spark-{spark}"
    complete = target / "complete"
    if not complete.exists():
        target.mkdir(parents=True, exist_ok=True)
        module = target / "ivy.xml"
        module.write_text(_MODULE.format(spark=".".join(spark.split(".")[:2]), delta=delta))
        if not _retrieve(module):
            return []
        complete.touch()
    return sorted(target.glob("*.jar"))


def _retrieve(module: Path) -> bool:
    java, ivy, target = find_java(), _ivy(), module.parent
    if java is None or ivy is None:
        return False
    command = [java, "-jar", str(ivy), "-ivy", str(module), "-cache", str(target / "cache")]
    command += ["-types", "jar", "-retrieve", f"{target}/[artifact]-[revision].[ext]"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_TIME_LIMIT, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0 and any(target.glob("delta-spark*.jar"))


def _ivy() -> Path | None:
    spec = find_spec("pyspark")
    folders = spec.submodule_search_locations if spec else None
    return next((jar for f in folders or () for jar in Path(f).glob("jars/ivy-*.jar")), None)
