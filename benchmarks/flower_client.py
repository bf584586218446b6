"""The client of ``round_flower.py``, in a module that Flower's actors can import."""

from __future__ import annotations

from functools import cache

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from plain import train
from setting import FULL, QUICK, ROUND_LR, Setting, round_network, round_samples
from torch import Tensor

client = ClientApp()


@cache
def load_batches(setting: Setting) -> tuple[Tensor, Tensor]:
    """Return the batches of all clients, made once in each process, which has one core."""
    torch.set_num_threads(1)
    return round_samples(setting)


@client.train()
def train_client(message: Message, context: Context) -> Message:
    """Take the local steps of one client."""
    config = message.content["config"]
    setting = (QUICK if config["quick"] else FULL).of_network(config["network"])
    x, y = (part[int(context.node_config["partition-id"])] for part in load_batches(setting))
    module = round_network(setting)
    module.load_state_dict(message.content["arrays"].to_torch_state_dict())
    train(module, torch.optim.SGD(module.parameters(), lr=ROUND_LR), zip(x, y, strict=True))
    content = RecordDict(
        {
            "arrays": ArrayRecord(module.state_dict()),
            "metrics": MetricRecord({"num-examples": y.numel()}),
        }
    )
    return Message(content=content, reply_to=message)
