"""A client and its own data."""

from flwr.app import Context

from flower_digits.task import model
from srfca import ClientData, data
from srfca.flower import client_app


def own_data(context: Context) -> ClientData:
    """Digits that are all turned by the same angle; read yours from this machine instead.

    For your own: ``ClientData.from_arrays({name: (x, y)}, {name: (x_test, y_test)})``, with a name that no
    other client has and that stays.
    """
    everybody = data.rotated_digits(num_clients=int(context.node_config["num-partitions"]), rotations=2)
    return everybody.select(int(context.node_config["partition-id"]))


app = client_app(model=model, data=own_data)
