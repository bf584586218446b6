"""What data sets with natural users share: drawing users, and making them clients."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from srfca.data.client_data import ClientData
from srfca.data.loaders.users import Users, UserSamples
from srfca.errors import require


def draw_users(users: Users, num_clients: int, seed: int) -> Users:
    """Return a random subset of the users, in their original order.

    Raises:
        InputError: If there are fewer users than clients.
    """
    require(
        1 <= num_clients <= len(users),
        f"num_clients must be at least 1 and at most the {len(users)} users there are, "
        f"not {num_clients}",
    )
    order = np.random.default_rng([seed, num_clients]).permutation(len(users))
    return users.take(np.sort(order[:num_clients]))


def first_samples(samples: UserSamples, limit: int | None) -> UserSamples:
    """Return the first ``limit`` samples of every user, all of them if None."""
    if limit is None:
        return samples
    pairs = [samples.of(user) for user in range(len(samples.sizes))]
    x = np.concatenate([x[:limit] for x, _ in pairs])
    y = np.concatenate([y[:limit] for _, y in pairs])
    return UserSamples(x, y, np.minimum(samples.sizes, limit))


def users_as_clients(users: Users) -> ClientData:
    """Return client data with a client for each user, named by the user."""

    def pairs(samples: UserSamples) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        by_user = map(samples.of, range(len(users)))
        return {
            name: (_widen_symbols(x), y) for name, (x, y) in zip(users.names, by_user, strict=True)
        }

    return ClientData.from_arrays(pairs(users.train), pairs(users.test))


def _widen_symbols(x: NDArray[np.generic]) -> np.ndarray:
    """Return integers as int32, which embeddings accept; other numbers unchanged."""
    return x.astype(np.int32) if np.issubdtype(x.dtype, np.integer) else x
