"""``python -m babelgate.http.openapi`` prints the document as YAML."""

from __future__ import annotations

import sys
from typing import Any

import yaml

from babelgate.cluster.scrape import Scraping
from babelgate.gateway.ack_tokens import TokenKey, TokenSealer
from babelgate.gateway.gateway import Gateway
from babelgate.gateway.gauges import Gauges
from babelgate.gateway.routing import Router
from babelgate.http.api import create_api
from babelgate.http.auth import Auth
from babelgate.http.body import RequestLimits
from babelgate.http.exchange import Exchange
from babelgate.observe.metrics.recorder import Metrics
from babelgate.push.addresses import AddressGuard
from babelgate.push.pushes import Pushes


class _Dumper(yaml.SafeDumper):
    """Writes shared parts each time, without YAML anchors."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


async def _not_served(exchange: Exchange) -> None:
    """Stands for the streams, which only their path matters of here."""
    raise NotImplementedError


def main() -> None:
    """Print the document."""
    # The document depends on no configuration: a gateway without brokers has all the routes.
    gateway = Gateway({}, Router([]), TokenSealer([TokenKey("none", bytes(32))]))
    metrics = Metrics()
    pushes = Pushes(gateway, {}, AddressGuard(), metrics.pushed)
    scraping = Scraping(metrics, Gauges(gateway, metrics))
    api = create_api(gateway, auth=Auth(), limits=RequestLimits(), scraping=scraping, pushes=pushes, stream=_not_served)
    yaml.dump(api.document(), sys.stdout, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)


if __name__ == "__main__":
    main()
