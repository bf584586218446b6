"""The client: it trains and evaluates on its own data."""

from flwr.app import Context

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


app = client_app(model=model, data=load_data)
