"""A client: some of scikit-learn's digits, all turned by the same angle."""

from flwr.app import Context

from digits.task import model
from srfca import ClientData, data
from srfca.flower import client_app


def own_data(context: Context) -> ClientData:
    """This client's digits; read yours from this machine instead."""
    everybody = data.rotated_digits(clients=int(context.node_config["num-partitions"]), rotations=2)
    return everybody.only(int(context.node_config["partition-id"]))


app = client_app(model=model, data=own_data)
