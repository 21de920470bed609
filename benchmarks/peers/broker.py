"""One Kafka broker on the loopback, on an empty log folder, for as long as a `with` block lasts."""

from __future__ import annotations

import base64
import socket
import subprocess
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

HEAP = ("-Xms1g", "-Xmx2g")
START_SECONDS = 60.0

# Kafka's defaults, but for the addresses, the folder and what a single node can't do otherwise.
PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
log.dirs={folder}/data
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
auto.create.topics.enable=false
"""

LOGGING = """\
<Configuration>
  <Appenders>
    <File name="file" fileName="{folder}/server.log"><PatternLayout pattern="%d %p %c %m%n"/></File>
  </Appenders>
  <Loggers><Root level="info"><AppenderRef ref="file"/></Root></Loggers>
</Configuration>
"""


@contextmanager
def running(jars: Sequence[str], folder: Path) -> Iterator[str]:
    """Start a broker, give its address, and stop it at the end."""
    folder.mkdir(parents=True)
    port, controller = _free_port(), _free_port()
    properties = folder / "server.properties"
    properties.write_text(PROPERTIES.format(port=port, controller=controller, folder=folder))
    (folder / "log4j2.xml").write_text(LOGGING.format(folder=folder))
    java = ["java", "-server", *HEAP, "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"]
    java += [f"-Dlog4j2.configurationFile={folder}/log4j2.xml", "-cp", ":".join(jars)]
    cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    with (folder / "out.log").open("w") as out:
        form = ["format", f"--cluster-id={cluster}", "-c", str(properties)]
        tool = [*java, "kafka.tools.StorageTool", *form]
        subprocess.run(tool, check=True, stdout=out, stderr=out)
        broker = subprocess.Popen([*java, "kafka.Kafka", str(properties)], stdout=out, stderr=out)
    try:
        _wait_until_started(broker, folder)
        yield f"127.0.0.1:{port}"
    finally:
        broker.terminate()
        try:
            broker.wait(timeout=30)
        except subprocess.TimeoutExpired:
            broker.kill()
            broker.wait()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    return port


def _wait_until_started(broker: subprocess.Popen[bytes], folder: Path) -> None:
    log = folder / "server.log"
    deadline = time.monotonic() + START_SECONDS
    while not (log.exists() and "Kafka Server started" in log.read_text()):
        if broker.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"the Kafka broker did not start; see {log} and {folder}/out.log")
        time.sleep(0.1)
