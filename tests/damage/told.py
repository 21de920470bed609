"""What readers are told of records that are lost."""

from __future__ import annotations

import pytest

import kmq_spark as kmq


def tell_losses(queues: kmq.KeyedQueues, *names: str) -> None:
    """Have these queues say, once, that messages of them may be lost: the next get goes on."""
    for name in names:
        with pytest.raises(kmq.DataLossError) as lost:
            queues.get(name, queues.span(name)[0], 999)
        assert lost.value.context["queue"] == name.encode()
