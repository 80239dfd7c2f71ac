"""A client of a service, for Python (`Client`) and for the command line (`weft query`)."""

from weft.service.client.http_client import Client, Results, ServiceError

__all__ = ["Client", "Results", "ServiceError"]
