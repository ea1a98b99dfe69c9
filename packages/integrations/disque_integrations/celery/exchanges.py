"""Kombu's exchanges: how they find the queues for a message."""

from typing import Any

from kombu.transport.virtual import exchange as exchanges

from disque_integrations.celery.messages import Message


class DirectExchange(exchanges.DirectExchange):
    """Uses the queues that this process has declared; without any, leaves it to the server."""

    def deliver(self, message: Message, exchange: str, routing_key: str, **kwargs: Any) -> None:
        table = self.channel.state.exchanges.get(exchange, {}).get("table", ())
        queues = self.lookup(table, exchange, routing_key, None)
        for queue in queues:
            self.channel.put(queue, message)
        if not queues:
            self.channel.publish(exchange, routing_key, message)


class TopicExchange(exchanges.TopicExchange):
    """Leaves finding queues to the server."""

    def deliver(self, message: Message, exchange: str, routing_key: str, **kwargs: Any) -> None:
        self.channel.publish(exchange, routing_key, message)


class FanoutExchange(exchanges.FanoutExchange):
    """Leaves finding queues to the server."""

    def deliver(self, message: Message, exchange: str, routing_key: str, **kwargs: Any) -> None:
        self.channel.publish(exchange, None, message)
