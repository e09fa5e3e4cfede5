"""What the person who started a run should read although nothing failed, such as a damaged checkpoint passed over."""

from __future__ import annotations

import json
import logging

from redis import Redis

from webgym.broker import broker_errors, client_where

__all__ = ["Notices"]

logger = logging.getLogger(__name__)


class Notices:
    """Lines that the supervisor shows and that stay in the run's summary.

    Args:
        client: the run's Redis.
        key: of the list.
    """

    def __init__(self, client: Redis, key: str) -> None:
        self._client = client
        self._key = key

    def tell(self, text: str) -> None:
        """Say one line.

        Raises:
            BrokerError: Redis is gone; the line is in the log.
        """
        logger.warning("%s", text)
        with broker_errors(client_where(self._client)):
            self._client.rpush(self._key, json.dumps(text))
