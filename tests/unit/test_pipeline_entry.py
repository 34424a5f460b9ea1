"""The entry of the pipeline's image: a command of babelgate, or what Spark starts as a driver or an executor."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def entry(tmp_path: Path) -> Any:
    """A function that runs the image's entry with the given words; what it starts tells its own name and arguments."""
    for name in ("babelgate", "java", "spark/bin/spark-submit"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text('#!/bin/sh\necho "${0##*/}"\nfor each in "$@"; do echo "$each"; done\n')
        path.chmod(0o755)
    variables = {
        "PATH": f"{tmp_path}:/usr/bin:/bin",
        "SPARK_HOME": str(tmp_path / "spark"),
        "SPARK_DRIVER_BIND_ADDRESS": "10.0.0.1",
        "SPARK_DRIVER_URL": "spark://driver:7078",
        "SPARK_EXECUTOR_ID": "3",
        "SPARK_EXECUTOR_CORES": "2",
        "SPARK_EXECUTOR_MEMORY": "512m",
        "SPARK_EXECUTOR_POD_IP": "10.0.0.2",
        "SPARK_EXECUTOR_POD_NAME": "pod-3",
        "SPARK_APPLICATION_ID": "app-1",
        "SPARK_RESOURCE_PROFILE_ID": "0",
        "SPARK_JAVA_OPT_0": "-Dsome=two words",
        "SPARK_JAVA_OPT_1": "-Dother=1",
    }

    def run(*words: str) -> list[str]:
        command = ["sh", str(ROOT / "docker" / "pipeline"), *words]
        return subprocess.run(command, env=variables, check=True, capture_output=True, text=True).stdout.splitlines()

    return run


def test_the_image_runs_commands(entry: Any) -> None:
    assert entry("metrics", "a b") == ["babelgate", "pipeline", "metrics", "a b"]
    assert entry() == ["babelgate", "pipeline"]


def test_the_image_is_a_driver_or_an_executor_when_spark_says_so(entry: Any) -> None:
    driver = entry("driver", "--properties-file", "/p", "main.py", "pipeline", "metrics")
    assert driver[:3] == ["spark-submit", "--deploy-mode", "client"]
    assert driver[3:5] == ["--conf", "spark.driver.bindAddress=10.0.0.1"]
    assert driver[5:] == ["--properties-file", "/p", "main.py", "pipeline", "metrics"]
    java, *executor = entry("executor")
    assert java == "java"
    assert executor[:4] == ["-Dsome=two words", "-Dother=1", "-Xms512m", "-Xmx512m"]
    named = dict(zip(executor[-14::2], executor[-13::2], strict=True))
    assert named["--driver-url"] == "spark://driver:7078"
    assert named["--podName"] == "pod-3"
