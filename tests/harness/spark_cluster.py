"""A real standalone Spark cluster: a master and workers from the jars that come with pyspark, on the loopback.

The Python of its executors has every library of this one, and not this project: what runs there was sent there.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pyspark

from tests.harness import spark_jvm
from tests.harness.ci import missing

_READY_SECONDS = 120.0
_MASTER = re.compile(r"Starting Spark master at (spark://\S+)")
_REGISTERED = re.compile(r"Successfully registered with master")


class Cluster:
    """``master``: its URL. ``python``: what the executors run. Below ``folder`` each worker has a folder of its own."""

    def __init__(self, folder: Path, workers: int) -> None:
        self.workers = tuple(folder / f"worker-{number}" for number in range(workers))
        self.python = _executors_python(folder / "python")
        self.master = ""
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []

    @property
    def conf(self) -> dict[str, str]:
        """Settings for small jobs: an executor of one core on every worker, and no task before all are there."""
        return {
            "spark.cores.max": str(len(self.workers)),
            "spark.default.parallelism": str(len(self.workers)),
            "spark.sql.shuffle.partitions": str(len(self.workers)),
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",
            "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": "1g",
            "spark.driver.extraJavaOptions": spark_jvm.OPTIONS,
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": spark_jvm.OPTIONS,
            "spark.pyspark.python": str(self.python),
            "spark.ui.enabled": "false",
        }

    def start(self) -> None:
        """Returns when every worker has registered."""
        found = self._daemon("master.Master", "master", "--port", "0")
        self.master = self._await("master", _MASTER)[1]
        assert found.poll() is None
        for folder in self.workers:
            sizes = ["--cores", "1", "--memory", "600m", "--work-dir", str(folder)]
            self._daemon("worker.Worker", folder.name, "--port", "0", *sizes, self.master)
        for folder in self.workers:
            self._await(folder.name, _REGISTERED)

    def stop(self) -> None:
        """End all of it, executors too, whatever state it is in."""
        trees = []
        for process in self._processes:
            if process.poll() is None:
                trees += psutil.Process(process.pid).children(recursive=True)
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for child in psutil.wait_procs(trees, timeout=5)[1]:
            # The processes of Python that an executor left behind are in groups of their own.
            child.send_signal(signal.SIGKILL)

    def worker_of(self) -> dict[tuple[str, str], Path]:
        """By application and executor, the folder of the worker that ran it."""
        return {(path.parent.name, path.name): folder for folder in self.workers for path in folder.glob("app-*/*")}

    def _daemon(self, kind: str, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        home = Path(pyspark.__file__).parent
        environ = {
            key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "PYSPARK", "SPARK"))
        }
        environ |= {
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "192m",
            "SPARK_DAEMON_JAVA_OPTS": f"{spark_jvm.OPTIONS} -Dspark.master.rest.enabled=false",
        }
        command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}", "--host", "127.0.0.1"]
        with self._log(name).open("wb") as log:
            process = subprocess.Popen(
                [*command, "--webui-port", "0", *arguments],
                cwd=self._folder,
                env=environ,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self._processes.append(process)
        return process

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    def _await(self, name: str, said: re.Pattern[str]) -> re.Match[str]:
        deadline = time.monotonic() + _READY_SECONDS
        while time.monotonic() < deadline and all(process.poll() is None for process in self._processes):
            found = said.search(self._log(name).read_text(errors="replace"))
            if found:
                return found
            time.sleep(0.1)
        raise RuntimeError(f"Spark's {name} did not start:\n{self._log(name).read_text(errors='replace')[-2000:]}")


@contextmanager
def cluster(folder: Path, workers: int = 2) -> Iterator[Cluster]:
    """A cluster on ``folder``; it takes about 5 seconds to start."""
    if shutil.which("java") is None:
        missing("Java", "install openjdk-17-jre-headless")
    made = Cluster(folder, workers)
    try:
        made.start()
        yield made
    finally:
        made.stop()


def _executors_python(folder: Path) -> Path:
    """A Python with the libraries that are installed here. Their folder is named in a .pth file, and of the .pth files
    in it, one of which leads to this project, none is read then."""
    venv.create(folder, symlinks=True)
    inside = folder / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    (inside / "libraries.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    return folder / "bin" / "python"
