"""Fault injection: replies that never arrive."""

from srfca.errors import require
from srfca.federation.middleware.base import Middleware
from srfca.federation.protocol import Federation
from srfca.federation.replies import Replies, T
from srfca.federation.requests import Request
from srfca.random import Key, client_words, streams, uniform


class DropReplies(Middleware):
    """Lose each reply with a given probability.

    Args:
        federation: Where requests are passed on to.
        probability: Probability of losing a reply, in [0, 1].
        seed: Decides, with the client and the number of the request, which replies are lost.

    Raises:
        InputError: If it is not in this range.

    Examples:
        >>> from srfca import Simulation, data, federation, models
        >>> fed = Simulation(data.rotated_digits(num_clients=4), models.linear(64, 10))
        >>> DropReplies(fed, probability=1.0).ask(federation.ClassCounts([0, 1])).missing
        {0: 'dropped', 1: 'dropped'}
    """

    def __init__(self, federation: Federation, probability: float, seed: int = 0) -> None:
        require(0 <= probability <= 1, f"probability must be in [0, 1], not {probability}")
        super().__init__(federation)
        self._probability, self._seed, self._requests = probability, seed, 0

    def ask(self, request: Request[T]) -> Replies[T]:
        """Pass a request on, and drop some of the replies."""
        replies = self.federation.ask(request)
        key, self._requests = Key(self._seed, "dropped replies", self._requests), self._requests + 1
        words = client_words([self.client_ids[client] for client in replies.clients])
        lost = uniform(streams(key, words)) < self._probability
        return replies.without(replies.clients[lost.numpy()], reason="dropped")
