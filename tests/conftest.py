"""What every test gets: a clean environment, hypothesis profiles, a store on each kind of disk."""

from __future__ import annotations

import os
import signal
import sys
import uuid
from collections.abc import Generator, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from kmq_spark.demo import delta_jars
from kmq_storage.objects import memory
from tests.support import azurite as azurite_support
from tests.support import s3 as s3_support
from tests.support import spark as spark_support
from tests.support import spark_home as spark_home_support
from tests.support import workers as workers_support
from tests.support.clock import Clock
from tests.support.google import GoogleFront

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from xdist.remote import Producer
    from xdist.scheduler import LoadFileScheduling

    import kmq_spark as kmq

ROOT = Path(__file__).resolve().parent.parent

settings.register_profile("dev", deadline=None)
settings.register_profile(
    "ci", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("nightly", deadline=None, max_examples=2_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if "CI" in os.environ else "dev"))


def _source_roots() -> list[str]:
    roots = [str(ROOT), str(ROOT / "storage")]
    # In an installed project this module stands in site-packages; in a bare checkout it does not.
    return roots if find_spec("pyspark_kmq") else [*roots, str(ROOT / "kmq_spark" / "_autoload")]


# Before any JVM starts: Spark's workers and other child processes inherit these, and without them
# Spark takes the first python3 of the PATH, which knows neither pyarrow nor kmq.
os.environ["PYSPARK_PYTHON"] = sys.executable
os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
os.environ["PYTHONPATH"] = os.pathsep.join(
    [*_source_roots(), *filter(None, [os.environ.get("PYTHONPATH")])]
)
os.environ.pop("KMQ_STORE", None)
spark_home_support.use_spark_home()
# The suite starts hundreds of processes, and each would compile all that it imports.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# A shell starts what runs in its background deaf to Ctrl-C, and so would be all that tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


#: Where the fixtures `store_url` and `store` make stores; `s3` takes longer.
_PLACES = os.environ.get("KMQ_TEST_PLACES", "memory,local").split(",")


@pytest.fixture(params=_PLACES)
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of a store that does not exist yet, in memory and in a folder."""
    if request.param == "local":
        yield str(tmp_path / "store")
        return
    if request.param == "s3":
        yield request.getfixturevalue("s3_url")
        return
    yield f"memory://{uuid.uuid4().hex}"


@pytest.fixture(autouse=True)
def no_store_stays_in_memory() -> Iterator[None]:
    """Stores in memory live as long as their process; after hundreds it could not fork any more."""
    before = set(memory._stores)
    yield
    for name in memory._stores.keys() - before:
        del memory._stores[name]


@pytest.fixture
def clock() -> Clock:
    """The clock of `store`, to put forward what need not be waited for."""
    return Clock()


@pytest.fixture
def store(store_url: str, clock: Clock) -> Iterator[kmq.Store]:
    """An empty store, in memory and in a folder."""
    from kmq_spark.client.opening import open_store

    with open_store(store_url, environment=clock.environment) as opened:
        yield opened


@pytest.fixture(scope="session")
def moto() -> Iterator[s3_support.S3Server]:
    """An S3 server in memory."""
    server = s3_support.start_moto()
    yield server
    server.kill()


@pytest.fixture
def s3_url(moto: s3_support.S3Server, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of a store in a bucket, with the credentials in the environment."""
    for name, value in moto.environment().items():
        monkeypatch.setenv(name, value)
    return moto.new_url()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Processes that share a run of everything."""
    return workers_support.count_workers(config)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadFileScheduling:
    """Which of them runs what."""
    return workers_support.make_scheduler(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable() -> Generator[None, object, object]:
    """A report travels between processes as UTF-8, whatever text a test has printed."""
    return _as_utf8((yield))


def _as_utf8(value: object) -> object:
    """Lists, tuples and dictionaries with text that each process can read."""
    match value:
        case str():
            return value.encode(errors="replace").decode()
        case list() | tuple():
            return type(value)(map(_as_utf8, value))
        case dict():
            return {key: _as_utf8(part) for key, part in value.items()}
    return value


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests of Spark come first, which one process runs while the others run the rest.

    Files with tests of versitygw come last, and it is built meanwhile where it is missing.
    """
    needs = [item for item in items if "versitygw" in getattr(item, "fixturenames", ())]
    late = {workers_support.scope_of(item.nodeid) for item in needs}
    turns = {workers_support.SPARK: -1, **dict.fromkeys(late, 1)}
    items.sort(key=lambda item: turns.get(workers_support.scope_of(item.nodeid), 0))
    if needs:
        config.stash[_BUILD] = s3_support.build_versitygw()
    if any(item.get_closest_marker("spark") for item in items):
        config.stash[_ARCHIVE] = spark_home_support.build_class_archive()


_BUILD = pytest.StashKey["subprocess.Popen[bytes] | None"]()
_ARCHIVE = pytest.StashKey["subprocess.Popen[bytes] | None"]()


@pytest.fixture(scope="session")
def versitygw(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[s3_support.S3Server]:
    """An S3 server on a folder; without Go the test is skipped, with the reason."""
    reason = s3_support.missing_versitygw(pytestconfig.stash.get(_BUILD, None))
    if reason:
        pytest.skip(reason)
    server = s3_support.start_versitygw(tmp_path_factory.mktemp("versitygw"))
    yield server
    server.kill()


@pytest.fixture(scope="session")
def google(moto: s3_support.S3Server) -> Iterator[GoogleFront]:
    """Google's XML interface, over moto."""
    with GoogleFront(moto, hang_seconds=0.0) as front:  # no answer is late, only slow
        yield front


@pytest.fixture(scope="session")
def azurite() -> Iterator[azurite_support.Azurite]:
    """Azure's emulator; where it is not installed the test is skipped, with the reason."""
    if reason := azurite_support.missing_azurite():
        pytest.skip(reason)
    server = azurite_support.start_azurite()
    yield server
    server.kill()


@pytest.fixture(scope="session")
def spark(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkSession]:
    """The Spark session of this run; without a JVM the test is skipped, or fails where required."""
    spark_support.require_jvm()
    jars = delta_jars.fetch(pytestconfig.cache.mkdir("delta-jars"))
    warehouse = tmp_path_factory.mktemp("warehouse")
    session = spark_support.start_session(warehouse, jars, quick=True)
    yield session
    session.stop()
