"""Flower's grid in this process: messages go straight to a ClientApp, with all of their records."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from flwr.app import Context, Error, Message, RecordDict
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity


class LocalGrid(Grid):
    """Nodes 1, 2, ... that all run one app; each keeps its context as long as it is connected.

    Attributes:
        fault: Called with a partition and a message. It may return an exception, which the client
            raises, a message, which is the reply, or the ellipsis for no reply at all; None is no
            fault.
        log: Partition and message type of all messages that were delivered.
        sent: All messages by id.
        replies: Replies that were not pulled yet, by message id.
        one_by_one: Return only one introduction at each pull.
        keys: Public keys of nodes, for those that have one.
    """

    def __init__(
        self, app: Callable[[Message, Context], Message], partitions: Iterable[int]
    ) -> None:
        self.app = app
        self.contexts: dict[int, Context] = {}
        self.fault: Callable[[int, Message], object] = lambda partition, message: None
        self.log: list[tuple[int, str]] = []
        self.sent: dict[str, Message] = {}
        self.replies: dict[str, Message] = {}
        self.one_by_one = False
        self.keys: dict[int, bytes] = {}
        self._next = 1
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 0, 1
        for partition in partitions:
            self.join(partition)

    def join(self, partition: int, key: bytes | None = None) -> int:
        """Start a node, and return its id, which no node had before."""
        node, self._next = self._next, self._next + 1
        if key is not None:
            self.keys[node] = key
        self.contexts[node] = Context(
            run_id=1, node_id=node, node_config={"partition-id": partition},
            state=RecordDict(), run_config={},
        )  # fmt: skip
        return node

    def leave(self, partition: int) -> None:
        """Stop a node."""
        for node, context in list(self.contexts.items()):
            if context.node_config["partition-id"] == partition:
                del self.contexts[node]

    def set_run(self, run: Run) -> None:
        raise NotImplementedError

    @property
    def run(self) -> Run:
        raise NotImplementedError

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        raise NotImplementedError

    def get_node_ids(self) -> list[int]:
        return list(self.contexts)

    def get_nodes(self) -> list[NodeInfo]:
        return [NodeInfo(node_id=n, public_key=self.keys.get(n, b"")) for n in self.get_node_ids()]

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        return [self._deliver(message) for message in messages]

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        ready = [name for name in message_ids if name in self.replies]
        if self.one_by_one:
            hellos = [n for n in ready if self.sent[n].metadata.message_type == "query.hello"]
            ready = [name for name in ready if name not in hellos[1:]]
        return [self.replies.pop(name) for name in ready]

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> list[Message]:
        raise NotImplementedError

    def _deliver(self, message: Message) -> str:
        name = f"message {len(self.log)}"
        message.metadata.__dict__["_message_id"] = name
        self.sent[name] = message
        node = message.metadata.dst_node_id
        if node not in self.contexts:
            return name
        context = self.contexts[node]
        partition = int(context.node_config["partition-id"])
        self.log.append((partition, message.metadata.message_type))
        fault = self.fault(partition, message)
        if fault is ...:
            return name
        if isinstance(fault, Message):
            self.replies[name] = fault
            return name
        try:
            if isinstance(fault, Exception):
                raise fault
            self.replies[name] = self.app(message, context)
        except Exception as error:
            self.replies[name] = Message(Error(code=2, reason=str(error)), reply_to=message)
        return name
