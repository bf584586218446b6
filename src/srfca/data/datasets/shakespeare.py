"""Shakespeare's plays, a client for each speaking role; predict the next character."""

from __future__ import annotations

from pathlib import Path

from srfca.data.client_data import ClientData
from srfca.data.datasets._users import draw_users, first_samples, users_as_clients
from srfca.data.loaders.users import Users
from srfca.data.registry import register_dataset


@register_dataset("shakespeare")
def shakespeare(
    *,
    num_clients: int = 50,
    min_samples: int = 1000,
    max_samples: int | None = None,
    folder: str | Path | None = None,
    seed: int = 0,
) -> ClientData:
    """Return randomly drawn speaking roles of Shakespeare's plays.

    A sample is 80 characters, ``[80]`` indices of an alphabet of 80 symbols, and the character that
    follows. The true partition is not known.

    Args:
        num_clients: Number of roles.
        min_samples: Minimum number of samples of a role, training and test together.
        max_samples: Use at most this many training samples of a role, the first ones, and at most a
            quarter as many test samples; None for no limit.
        folder: The data folder; None for ``SRFCA_DATA`` or the user's cache folder.
        seed: Decides which roles are drawn.

    Returns:
        The roles, each a client.

    Raises:
        InputError: If the files are missing or damaged, or too few roles have that many samples.

    Examples:
        With the files in the data folder::

            data = shakespeare(num_clients=10, max_samples=500)
    """
    from srfca.data.loaders import shakespeare as loader

    roles = loader.load(folder, min_samples).at_least(test=1)
    users = draw_users(roles, num_clients, seed)
    max_test_samples = None if max_samples is None else max(1, max_samples // 4)
    train = first_samples(users.train, max_samples)
    test = first_samples(users.test, max_test_samples)
    return users_as_clients(Users(users.names, train, test))
