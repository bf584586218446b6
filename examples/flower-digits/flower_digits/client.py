"""The client: it trains and evaluates on its own data."""

from pathlib import Path

from flwr.app import Context
from safetensors.torch import save_model
from torch import nn

from flower_digits.task import model
from srfca import ClientData, data
from srfca.flower import client_app


def load_data(context: Context) -> ClientData:
    """Return this client's data: digits that are all rotated by the same angle.

    To use your own, return ``ClientData.from_arrays({name: (x, y)}, {name: (x_test, y_test)})``
    with what you read from this machine. The name must be unique, and must not change.
    """
    num_clients = int(context.node_config["num-partitions"])
    digits = data.rotated_digits(num_clients=num_clients, rotations=2)
    return digits.select(int(context.node_config["partition-id"]))


def keep_model(module: nn.Module, context: Context) -> None:
    """Keep this client's final model on its machine: ``module`` is ready to predict.

    ``safetensors.torch.load_model`` reads it into a module of the same kind.
    """
    folder = Path("models")
    folder.mkdir(exist_ok=True)
    path = folder / f"client-{context.node_config['partition-id']}.safetensors"
    save_model(module, str(path))
    print(f"final model: {path.resolve()}")


app = client_app(model=model, data=load_data, receive=keep_model)
