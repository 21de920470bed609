"""`kmq_spark.aio` in a real kernel, whose cells share the event loop that runs them.

Finds: a handle that is tied to another loop, and one that blocks the kernel's.
"""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

pytestmark = pytest.mark.notebooks

CELLS = [
    """
import asyncio
from kmq_spark import aio

store = await aio.open("store", maintenance=False)
await store.create_topic("orders")
producer = await store.producer()
""",
    """
sent = await asyncio.gather(*(producer.send("orders", b"%d" % n) for n in range(100)))
await producer.flush()
""",
    """
ticks = 0

async def tick():
    global ticks
    while True:
        ticks += 1
        await asyncio.sleep(0.001)

ticking = asyncio.create_task(tick())
async with store.consumer(topics=["orders"]) as consumer:
    found = []
    async for record in consumer:
        found.append(record.value)
        if len(found) == 100:
            break
    nothing = await consumer.poll(timeout=0.2)
""",
    """
ticking.cancel()
await producer.close()
await store.close()
assert found == [b"%d" % n for n in range(100)], found
assert not nothing and ticks > 1, (nothing, ticks)
print("done")
""",
]


def test_cells_of_a_notebook_await_one_store(tmp_path: Path):
    cells = [nbformat.v4.new_code_cell(source) for source in CELLS]
    notebook = nbformat.v4.new_notebook(cells=cells)
    where = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=120, kernel_name="python3", resources=where).execute()
    assert notebook.cells[-1].outputs[0].text == "done\n"
