"""PySpark's classes are looked up once. This depends on how PySpark and Py4J name and keep them."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING

import pytest
from py4j.java_gateway import GatewayClient

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_function_is_one_call_to_java(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark.sql import functions

    functions.col("id")
    sent: list[str] = []
    send = GatewayClient.send_command

    def counted(client: GatewayClient, command: str, *rest: object, **more: object) -> object:
        # Commands that begin with m only release objects.
        if not command.startswith("m"):
            sent.append(command)
        return send(client, command, *rest, **more)

    monkeypatch.setattr(GatewayClient, "send_command", counted)
    functions.col("id")
    gone = (
        f"PySpark {version('pyspark')} asks for classes in another way than "
        "app/babelgate/pipeline/spark/java_classes.py expects"
    )
    assert len(sent) == 1, f"{gone}: {sent}"
